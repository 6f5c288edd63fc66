"""Every interface has every declared sampling parameter. A failure names the missing place."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args, get_origin

import pytest
import typer

from deployments.api.http.openapi import body_of
from deployments.api.http.schemas import ChatBody, CompletionBody
from deployments.cli.generate.prompt_file import PromptLine
from deployments.cli.main import app
from deployments.text.sampling_fields import SamplingFields
from deployments.wire.request_codec import sampling_from_pb, sampling_to_pb
from specdec.v1 import generation_pb2 as pb
from specdec_core.grammar import GrammarKind, GrammarSpec
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingField, SamplingParams
from tests.deployments.text.sampling_table import BY_HAND, PAGE, with_table

PROTO_FIELDS = pb.SamplingParams.DESCRIPTOR.fields_by_name
each_field = pytest.mark.parametrize("field", SAMPLING_FIELDS, ids=lambda field: field.name)
_EXAMPLES: dict[str, Any] = {
    "logit_bias": ((3, 1.5), (9, -2.0)),
    "bad_words": ((1, 2), (3,)),
    "grammar": GrammarSpec(GrammarKind.REGEX, "a+"),
}


def _example(field: SamplingField) -> Any:
    """A value that is allowed and not the default."""
    if field.name in _EXAMPLES:
        return _EXAMPLES[field.name]
    if get_origin(field.type) is tuple:
        return (4, 2)
    if field.type is bool:
        return not field.default
    kind = next(kind for kind in (field.type, *get_args(field.type)) if kind in (int, float))
    low, high, _ = field.limits or (0, 3, "")
    values = [kind(min(high, low + step)) for step in range(3)]
    return next(value for value in values if value not in (field.default, 0))


@each_field
def test_a_parameter_has_a_proto_field_that_can_be_left_out(field: SamplingField) -> None:
    proto_field = PROTO_FIELDS.get(field.proto_name)
    assert proto_field is not None, (
        f"add {field.proto_name} to message SamplingParams in proto/specdec/v1/generation.proto, "
        "and run proto/generate.sh"
    )
    zeros = (0, 0.0, False, (), None)
    assert proto_field.has_presence or field.default in zeros, (
        f"{field.proto_name} must be `optional`, because {field.default} is not the zero of proto3"
    )


def test_a_proto_field_is_a_parameter() -> None:
    declared = {field.proto_name for field in SAMPLING_FIELDS}
    assert set(PROTO_FIELDS) - declared == {"bad_words"}, "texts, which become IDs at the ingress"


@each_field
def test_a_parameter_crosses_the_wire(field: SamplingField) -> None:
    value = _example(field)
    needed = {"max_tokens": 50} if field.name == "min_tokens" else {}
    params = SamplingParams(**needed, **{field.name: value})
    read = sampling_from_pb(
        pb.SamplingParams.FromString(sampling_to_pb(params).SerializeToString())
    )
    assert read == params
    assert getattr(read, field.name) == value


@pytest.mark.parametrize("body", [CompletionBody, ChatBody, PromptLine])
def test_each_json_body_has_each_parameter(body: type[SamplingFields]) -> None:
    other_forms = {field.name for field in SAMPLING_FIELDS if field.name not in body.model_fields}
    assert other_forms <= {"grammar", "num_logprobs", "num_prompt_logprobs"}
    for name in SamplingFields.model_fields:
        assert body.model_fields[name].default is None
        assert NoneType in get_args(body.model_fields[name].annotation)


def test_openapi_explains_each_parameter() -> None:
    schema = body_of(CompletionBody)["requestBody"]["content"]["application/json"]["schema"]
    for field in SAMPLING_FIELDS:
        if field.name in SamplingFields.model_fields:
            assert schema["properties"][field.name]["description"] == field.help


def test_generate_has_the_declared_flags() -> None:
    command = typer.main.get_command(app)
    generate = command.commands["generate"]  # type: ignore[attr-defined]
    flags = {flag for option in generate.params for flag in option.opts}
    missing = [field.flag for field in SAMPLING_FIELDS if field.flag and field.flag not in flags]
    assert not missing, f"specdec generate lacks {missing}"


def test_the_page_of_the_api_has_the_present_table() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "run python -m tests.deployments.text.sampling_table"
    for name in BY_HAND:
        assert f"| `{name}`" in page
