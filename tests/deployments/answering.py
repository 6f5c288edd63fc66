"""A service whose model answers chats with given texts, with the marks of a format of answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from fastapi.testclient import TestClient

from deployments.api.http.routes import build_http_app
from deployments.config.service import SpecMetrics
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.reading import Answers
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from deployments.text.chat_rendering import compile_template
from deployments.text.detokenizer import token_bytes_of
from deployments.text.tokenizer import TextModel
from specdec_core.request import Request, TokenEvent
from tests.deployments.ingress.test_client_resume import ScriptedPool, service_of
from tests.deployments.text.tokenizers import byte_level

HERMES = AnswerFormat(reasoning=REASONING_FORMATS["qwen3"], calls=CALL_FORMATS["hermes"])
CHANNELS = AnswerFormat(reasoning=REASONING_FORMATS["openai_gptoss"], calls=CALL_FORMATS["openai"])
CALLS_ALONE = AnswerFormat(calls=CALL_FORMATS["hermes"])
CHATML = "<|im_start|>assistant\n"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
USER = {"role": "user", "content": "hi"}
_SPECIAL = (
    *("<|im_start|>", "<|im_end|>", "<|pad|>"),
    *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"),
)
_ENDS = ("<|im_end|>", "<|call|>")


def text_model(
    answer_format: AnswerFormat | None, begins: str = CHATML, marks: Sequence[str] = ()
) -> TextModel:
    """A tokenizer of bytes, special tokens and `marks`; prompts end with `begins`."""
    backend = byte_level()
    backend.add_special_tokens(list(_SPECIAL))
    backend.add_tokens(list(marks))
    template = compile_template(
        "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ begins }}{% endif %}"
    )
    template.compiled.globals["begins"] = begins
    added = backend.get_added_tokens_decoder()
    ids = {text: backend.token_to_id(text) for text in _SPECIAL}
    return TextModel(
        backend=backend,
        template=template,
        answers=None if answer_format is None else Answers(answer_format),
        special_tokens={},
        end_token_ids=frozenset(ids[text] for text in _ENDS),
        max_model_len=2_000,
        longest_token_bytes=16,
        token_bytes=token_bytes_of(backend),
        hidden_tokens={i: token.content for i, token in added.items() if token.special},
    )


class AnsweringPool(ScriptedPool):
    """Answers choice by choice with the texts, and notes the requests."""

    def __init__(self, text: TextModel, answers: Sequence[str], seed: int = 0) -> None:
        super().__init__((), seed)
        self.asked: list[Request] = []
        self._answers = [text.encode_part(one) for one in answers]

    async def generate(self, request: Request, **fields: Any) -> AsyncIterator[TokenEvent]:
        self.asked.append(request)
        _, _, choice = request.request_id.partition("-")
        self._ids = self._answers[int(choice or 0) % len(self._answers)]
        told = ScriptedPool(self._ids, self._chance.randrange(100)).generate(request, **fields)
        async for event in told:
            yield event


def service(
    answer_format: AnswerFormat | None, *answers: str, begins: str = CHATML, seed: int = 0
) -> GenerationService:
    """A service whose answers are these texts, which end with an end token or are cut."""
    text = text_model(answer_format, begins)
    return service_of(text, AnsweringPool(text, answers, seed))


@contextlib.contextmanager
def client_of(served: GenerationService) -> Iterator[TestClient]:
    access = Access({}, "127.0.0.1")
    app = build_http_app(served, access, max_body_bytes=100_000, metrics=SpecMetrics.NONE)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def chat(client: TestClient, **fields: Any) -> dict[str, Any]:
    """Return the body of a whole answer."""
    answer = client.post("/v1/chat/completions", json={"messages": [USER], "seed": 3} | fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def chunks(client: TestClient, **fields: Any) -> list[dict[str, Any]]:
    """Return the chunks of a stream, the usage last."""
    asked = {"messages": [USER], "seed": 3, "stream": True, "stream_options": {}} | fields
    asked["stream_options"] = {"include_usage": True} | asked["stream_options"]
    answer = client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    return [json.loads(event[6:]) for event in answer.text.split("\n\n")[:-2]]


def joined(parts: Sequence[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """Return a choice of a stream in the shape of a whole answer's, without IDs of calls."""
    told = [one for part in parts for one in part["choices"] if one["index"] == index]
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: list[dict[str, Any]] = []
    for delta in (one["delta"] for one in told):
        for name in ("content", "reasoning", "reasoning_content"):
            if delta.get(name):
                message[name] = message.get(name, "") + delta[name]
        for call in delta.get("tool_calls", []):
            assert call["index"] == len(calls)
            calls.append(call["function"])
    return {"message": message, "calls": calls, "finish_reason": told[-1]["finish_reason"]}


def entire(body: dict[str, Any], index: int = 0) -> dict[str, Any]:
    """Return a choice of a whole answer in the same shape; a stream has no null content."""
    told = body["choices"][index]
    message = dict(told["message"])
    calls = message.pop("tool_calls", [])
    assert all("index" not in call and call["type"] == "function" for call in calls)
    return {
        "message": message | {"content": message["content"] or ""},
        "calls": [call["function"] for call in calls],
        "finish_reason": told["finish_reason"],
    }
