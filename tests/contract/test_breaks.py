"""Every kind of break is told by its name, and what adds to a contract is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from tests.contract import __main__ as check
from tests.contract.breaks import breaks

Change = Callable[[FileDescriptorProto], object]


@pytest.fixture(scope="module")
def promised() -> FileDescriptorSet:
    return check.promised()


def public(files: FileDescriptorSet) -> FileDescriptorProto:
    return next(file for file in files.file if file.name.endswith(check.PUBLIC))


def message(file: FileDescriptorProto, name: str) -> DescriptorProto:
    return next(one for one in file.message_type if one.name == name)


def field(file: FileDescriptorProto, owner: str, name: str) -> FieldDescriptorProto:
    return next(one for one in message(file, owner).field if one.name == name)


def reasons(file: FileDescriptorProto) -> EnumDescriptorProto:
    return next(one for one in file.enum_type if one.name == "FinishReason")


def remove(owner: str, name: str, *, number: bool, word: bool) -> Change:
    def change(file: FileDescriptorProto) -> None:
        place = message(file, owner)
        gone = field(file, owner, name)
        if number:
            place.reserved_range.add(start=gone.number, end=gone.number + 1)
        if word:
            place.reserved_name.append(name)
        place.field.remove(gone)

    return change


def assign(owner: str, which: str, **values: object) -> Change:
    def change(file: FileDescriptorProto) -> None:
        for key, value in values.items():
            setattr(field(file, owner, which), key, value)

    return change


def rename_service(file: FileDescriptorProto) -> None:
    file.service[0].name = "TextService"


def rename_method(file: FileDescriptorProto) -> None:
    file.service[0].method[0].name = "Complete"


def stop_streaming(file: FileDescriptorProto) -> None:
    file.service[0].method[0].server_streaming = False


def drop_presence(file: FileDescriptorProto) -> None:
    place = field(file, "SamplingParams", "temperature")
    place.ClearField("proto3_optional")
    place.ClearField("oneof_index")


def leave_oneof(file: FileDescriptorProto) -> None:
    members = (one for one in message(file, "GenerateRequest").field if one.name == "chat")
    next(members).ClearField("oneof_index")


def drop_message(file: FileDescriptorProto) -> None:
    file.message_type.remove(message(file, "TokenIds"))


def rename_value(file: FileDescriptorProto) -> None:
    reasons(file).value[1].name = "FINISH_REASON_END"


def drop_value(file: FileDescriptorProto) -> None:
    del reasons(file).value[-1]


BREAKS: list[tuple[Change, str]] = [
    (drop_message, "TokenIds is gone"),
    (rename_service, "GenerationService is gone"),
    (rename_method, "method Generate is gone"),
    (stop_streaming, "method Generate was .* -> stream .*, is .* -> "),
    (
        remove("ChatMessage", "role", number=False, word=True),
        "field role is gone and its number 1 is not reserved",
    ),
    (
        remove("ChatMessage", "role", number=True, word=False),
        "field role is gone and its name is not reserved",
    ),
    (assign("ChatMessage", "role", name="speaker"), "name of field role was role, is speaker"),
    (assign("ChatMessage", "role", number=900), "field role is gone and its number 1"),
    (
        assign("TokenIds", "ids", type=FieldDescriptorProto.TYPE_INT64),
        "type of field ids was TYPE_INT32, is TYPE_INT64",
    ),
    (
        assign("TokenIds", "ids", label=FieldDescriptorProto.LABEL_OPTIONAL),
        "label of field ids was LABEL_REPEATED, is LABEL_OPTIONAL",
    ),
    (drop_presence, "label of field temperature was optional, is LABEL_OPTIONAL"),
    (leave_oneof, "oneof of field chat was input, is none"),
    (rename_value, "name of value FINISH_REASON_STOP was FINISH_REASON_STOP"),
    (drop_value, "value .* is gone and its number .* is not reserved"),
]


def test_the_contract_keeps_what_was_promised(promised: FileDescriptorSet) -> None:
    assert breaks(promised, check.present()) == []


@pytest.mark.parametrize(("change", "words"), BREAKS, ids=[words for _, words in BREAKS])
def test_a_break_is_told(promised: FileDescriptorSet, change: Change, words: str) -> None:
    after = FileDescriptorSet.FromString(promised.SerializeToString())
    change(public(after))
    found = breaks(promised, after)
    assert found
    with pytest.raises(AssertionError, match=words):
        assert not found, "\n".join(found)


def test_what_adds_or_retires_in_order_is_no_break(promised: FileDescriptorSet) -> None:
    after = FileDescriptorSet.FromString(promised.SerializeToString())
    file = public(after)
    remove("ChatMessage", "role", number=True, word=True)(file)
    message(file, "TokenIds").field.add(
        name="more", number=900, type=FieldDescriptorProto.TYPE_BOOL
    )
    reasons(file).value.add(name="FINISH_REASON_NEW", number=900)
    file.service[0].method.add(name="More", input_type=".specdec.v1.TokenIds")
    file.message_type.add(name="More")
    assert breaks(promised, after) == []


def test_a_new_protocol_version_wants_its_stream_put_down() -> None:
    with pytest.raises(FileNotFoundError, match=r"coordination\.v0\.proto"):
        check.promised(0)
