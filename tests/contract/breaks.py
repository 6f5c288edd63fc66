"""What breaks a client between two descriptor sets, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

_KIND = FieldDescriptorProto.Type
_LABEL = FieldDescriptorProto.Label


def breaks(before: FileDescriptorSet, after: FileDescriptorSet) -> list[str]:
    """Empty: whoever was built with `before` can talk to `after`."""
    found: list[str] = []
    for differing, old, new in (
        (_message_breaks, dict(_messages(before)), dict(_messages(after))),
        (_enum_breaks, dict(_enums(before)), dict(_enums(after))),
        (_service_breaks, dict(_services(before)), dict(_services(after))),
    ):
        for name, one in old.items():
            if name in new:
                found += [f"{name}: {words}" for words in differing(one, new[name])]
            else:
                found.append(f"{name} is gone")
    return found


def _message_breaks(old: DescriptorProto, new: DescriptorProto) -> Iterator[str]:
    kept = {field.number: field for field in new.field}
    reserved = [(span.start, span.end) for span in new.reserved_range]
    for field in old.field:
        if field.number in kept:
            yield from _field_breaks(_facts(old, field), _facts(new, kept[field.number]))
        else:
            yield from _gone("field", field, reserved, new.reserved_name)


def _field_breaks(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for fact, value in old.items():
        if value != new[fact]:
            yield f"{fact} of field {old['name']} was {value}, is {new[fact]}"


def _facts(message: DescriptorProto, field: FieldDescriptorProto) -> dict[str, str]:
    group = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else "none"
    return {
        "name": field.name,
        "type": field.type_name or _KIND.Name(field.type),
        "label": "optional" if field.proto3_optional else _LABEL.Name(field.label),
        "oneof": "none" if field.proto3_optional else group,
    }


def _enum_breaks(old: EnumDescriptorProto, new: EnumDescriptorProto) -> Iterator[str]:
    kept = {value.number: value.name for value in new.value}
    # The end of an enum's range belongs to it, that of a message's does not.
    reserved = [(span.start, span.end + 1) for span in new.reserved_range]
    for value in old.value:
        if value.number not in kept:
            yield from _gone("value", value, reserved, new.reserved_name)
        elif kept[value.number] != value.name:
            yield f"name of value {value.name} was {value.name}, is {kept[value.number]}"


def _gone(
    kind: str, one: Any, reserved: Iterable[tuple[int, int]], reserved_names: Iterable[str]
) -> Iterator[str]:
    """Its number and its name must stay taken: somebody may still send them."""
    if not any(start <= one.number < end for start, end in reserved):
        yield f"{kind} {one.name} is gone and its number {one.number} is not reserved"
    if one.name not in reserved_names:
        yield f"{kind} {one.name} is gone and its name is not reserved"


def _service_breaks(old: ServiceDescriptorProto, new: ServiceDescriptorProto) -> Iterator[str]:
    kept = {method.name: method for method in new.method}
    for method in old.method:
        if method.name not in kept:
            yield f"method {method.name} is gone"
        elif _shape(method) != _shape(kept[method.name]):
            yield f"method {method.name} was {_shape(method)}, is {_shape(kept[method.name])}"


def _shape(method: MethodDescriptorProto) -> str:
    takes = "stream " * method.client_streaming + method.input_type
    answers = "stream " * method.server_streaming + method.output_type
    return f"{takes} -> {answers}"


def _messages(files: FileDescriptorSet) -> Iterator[tuple[str, DescriptorProto]]:
    for file in files.file:
        yield from _nested(file.package, file.message_type)


def _nested(scope: str, some: Iterable[DescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    for message in some:
        name = f"{scope}.{message.name}"
        yield name, message
        yield from _nested(name, message.nested_type)


def _enums(files: FileDescriptorSet) -> Iterator[tuple[str, EnumDescriptorProto]]:
    scopes: list[tuple[str, FileDescriptorProto | DescriptorProto]]
    scopes = [(file.package, file) for file in files.file]
    for scope, owner in [*scopes, *_messages(files)]:
        yield from ((f"{scope}.{enum.name}", enum) for enum in owner.enum_type)


def _services(files: FileDescriptorSet) -> Iterator[tuple[str, ServiceDescriptorProto]]:
    for file in files.file:
        yield from ((f"{file.package}.{service.name}", service) for service in file.service)
