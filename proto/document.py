"""Write what a descriptor set with comments says as Markdown: python document.py SET FILE..."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
"""Field numbers of FileDescriptorProto, of which the paths of comments are made."""
_FIELD = _METHOD = _VALUE = 2
"""Of a message, a service and an enum."""
_KIND = FieldDescriptorProto.Type

Comments = dict[tuple[int, ...], str]


def document(file: FileDescriptorProto) -> Iterator[str]:
    comments = {tuple(at.path): at.leading_comments for at in file.source_code_info.location}
    for place, service in enumerate(file.service):
        yield from _service(service, comments, (_SERVICE, place))
    for place, message in enumerate(file.message_type):
        yield from _message(message, comments, (_MESSAGE, place))
    for place, enum in enumerate(file.enum_type):
        yield from _enum(enum, comments, (_ENUM, place))


def _service(
    service: ServiceDescriptorProto, comments: Comments, path: tuple[int, ...]
) -> Iterator[str]:
    yield f"## {service.name}\n\n{_text(comments, path)}\n"
    yield "| method | takes | answers | |\n|---|---|---|---|"
    for place, method in enumerate(service.method):
        takes, answers = (
            ("stream of " if is_stream else "") + _short(name)
            for is_stream, name in (
                (method.client_streaming, method.input_type),
                (method.server_streaming, method.output_type),
            )
        )
        told = _text(comments, (*path, _METHOD, place))
        yield f"| {method.name} | {takes} | {answers} | {told} |"
    yield ""


def _message(message: DescriptorProto, comments: Comments, path: tuple[int, ...]) -> Iterator[str]:
    yield f"## {message.name}\n\n{_text(comments, path)}\n"
    if not message.field:
        return
    yield "| field | type | |\n|---|---|---|"
    for place, field in enumerate(message.field):
        told = _text(comments, (*path, _FIELD, place))
        yield f"| {field.name} | {_type(message, field)} | {told} |"
    yield ""


def _enum(enum: EnumDescriptorProto, comments: Comments, path: tuple[int, ...]) -> Iterator[str]:
    yield f"## {enum.name}\n\n{_text(comments, path)}\n"
    yield "| value | |\n|---|---|"
    for place, value in enumerate(enum.value):
        yield f"| {value.name} | {_text(comments, (*path, _VALUE, place))} |"
    yield ""


def _type(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    name = _short(field.type_name) or _KIND.Name(field.type).removeprefix("TYPE_").lower()
    entries = {nested.name: nested for nested in message.nested_type}
    if name in entries and entries[name].options.map_entry:
        key, value = entries[name].field
        return f"map of {_type(message, key)} to {_type(message, value)}"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    if field.proto3_optional:
        return f"{name}, optional"
    if field.HasField("oneof_index"):
        return f"{name}, one of `{message.oneof_decl[field.oneof_index].name}`"
    return name


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _text(comments: Comments, path: tuple[int, ...]) -> str:
    return " ".join(comments.get(path, "").split()).replace("|", r"\|")


def main(descriptor_set: str, *names: str) -> None:
    files = FileDescriptorSet.FromString(Path(descriptor_set).read_bytes()).file
    print("# The gRPC service\n\nMade from the comments of its proto file by `make proto`.\n")
    for file in files:
        if file.name in names:
            print("\n".join(document(file)).rstrip())


if __name__ == "__main__":
    main(*sys.argv[1:])
