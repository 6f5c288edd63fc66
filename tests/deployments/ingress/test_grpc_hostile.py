"""Text of any depth, size or number over gRPC is an invalid argument that names field and limit."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

from deployments.api.grpc.service import GrpcApi
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.ingress.request_limits import RequestLimits
from deployments.text.grammar_limits import GrammarLimits
from specdec.v1 import generation_pb2 as pb
from specdec_core.config import SpeculationConfig
from tests.deployments.fake_text import fake_text_model
from tests.deployments.ingress.test_client_resume import ScriptedPool
from tests.deployments.ingress.test_grpc_api import FakeContext
from tests.deployments.ingress.test_grpc_errors import info_of

pytest.importorskip("llguidance")

DEEP = "[" * 90_000
USER = pb.ChatMessage(role="user", content="HI")


def grammar(**fields: object) -> pb.GenerateRequest:
    structured = pb.StructuredOutput(**fields)
    return pb.GenerateRequest(
        prompt="A", sampling=pb.SamplingParams(structured_output=structured, max_tokens=1)
    )


def chat(*messages: pb.ChatMessage, **fields: object) -> pb.GenerateRequest:
    return pb.GenerateRequest(chat=pb.ChatMessages(messages=messages, **fields))


def called(arguments: str) -> pb.ChatMessage:
    return pb.ChatMessage(role="assistant", tool_calls=[pb.ToolCall(name="f", arguments=arguments)])


OUTPUT = "structured_output"
REFUSED: dict[str, tuple[pb.GenerateRequest, str, str]] = {
    "deep schema": (grammar(json_schema=DEEP), "nested too deeply", f"{OUTPUT}.json_schema"),
    "deep regex": (grammar(regex="(" * 900 + "a" + ")" * 900), "too deeply", f"{OUTPUT}.regex"),
    "deep Lark": (
        grammar(grammar=f"start: %json {DEEP[:1_000]}"),
        "nested too deeply",
        f"{OUTPUT}.grammar",
    ),
    "deep arguments": (
        chat(USER, called(DEEP), USER),
        "nested too deeply",
        "messages.1.tool_calls.0.function.arguments",
    ),
    "deep variables": (chat(USER, chat_template_kwargs=DEEP), "too deep", "chat_template_kwargs"),
    "deep parameters": (
        chat(USER, tools=[pb.Tool(name="f", parameters=DEEP)]),
        "nested too deeply",
        "tools.0.parameters",
    ),
    "rounded number": (
        grammar(json_schema='{"items": {"enum": [1, 1234567890123456789]}}'),
        "#/items/enum/1 is 1234567890123456789",
        f"{OUTPUT}.json_schema",
    ),
    "names that collide": (
        grammar(
            json_schema='{"properties": {"ab": {}}, "patternProperties": {"a": {"type": "null"}, '
            '"b": {"type": "integer"}}}'
        ),
        "patternProperties",
        f"{OUTPUT}.json_schema",
    ),
    "lookahead": (grammar(regex="(?=a)b"), "a lookahead", f"{OUTPUT}.regex"),
    "slow": (grammar(regex="(a{999}){1000}"), "max_grammar_seconds=0.2", f"{OUTPUT}.regex"),
    "long grammar": (
        grammar(choice=pb.Choices(texts=["a" * 3_000])),
        "max_grammar_chars=2000",
        f"{OUTPUT}.choice.texts",
    ),
    "long prompt": (pb.GenerateRequest(prompt="A" * 3_000), "(max_prompt_chars)", "prompt"),
    "long chat": (
        chat(pb.ChatMessage(role="user", content="A" * 3_000)),
        "(max_prompt_chars)",
        "messages",
    ),
    "many messages": (chat(*[USER] * 5), "(max_messages)", "messages"),
    "many tokens": (
        pb.GenerateRequest(prompt="A", sampling=pb.SamplingParams(max_tokens=21)),
        "(max_output_tokens)",
        "max_tokens",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused_by_field_and_limit(name: str) -> None:
    message, reason, param = REFUSED[name]
    service = GenerationService(
        fake_text_model(),
        ScriptedPool((1,)),  # type: ignore[arg-type]
        model_name="m",
        speculation=SpeculationConfig(),
        limits=RequestLimits(max_prompt_chars=2_000, max_messages=4, max_output_tokens=20),
        grammar_limits=GrammarLimits(max_chars=2_000, max_seconds=0.2),
    )
    context = FakeContext()
    calls = GrpcApi(service, Access({}, "127.0.0.1"), max_body_bytes=1_000_000)
    await calls.generate_once(message, context)
    assert context.code is grpc.StatusCode.INVALID_ARGUMENT, context.details
    assert reason in context.details
    info: error_details_pb2.ErrorInfo = info_of(context)
    assert info.metadata["param"] == param
