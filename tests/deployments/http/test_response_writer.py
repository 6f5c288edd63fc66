"""Many log-probabilities are told in a thread, and read as they would from the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from deployments.api.http.logprob_json import Echo
from deployments.api.http.responses import COMPLETION, Choice, Response
from deployments.api.http.routes import streamed, whole
from deployments.api.http.sse import END
from deployments.config.service import SpecMetrics
from deployments.ingress.generation_request import GenerationRequest
from deployments.ingress.output import OutputChunk
from deployments.ingress.request_limits import Lanes
from deployments.ingress.streams import Admission, begin
from deployments.text.tokenizer import TextModel
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason
from tests.deployments.fake_text import fake_text_model
from tests.deployments.ingress.test_client_resume import ScriptedPool, service_of


def entries(count: int, num_top: int) -> tuple[TokenLogprobs, ...]:
    return tuple(
        TokenLogprobs(-1.5, tuple((i, -0.1 * i - 1e-7) for i in range(num_top)))
        for _ in range(count)
    )


def parts(
    text: TextModel, prompt_len: int, num_tokens: int
) -> tuple[Response, OutputChunk, list[Any]]:
    """An answer, its only piece, and the threads in which its tokens were spelled."""
    threads: list[threading.Thread] = []

    def token_bytes(token_id: int) -> bytes:
        threads.append(threading.current_thread())
        return text.token_bytes(token_id)

    ask = GenerationRequest(
        sampling={"logprobs": 20, "prompt_logprobs": 20, "max_tokens": num_tokens}
    )
    generation = service_of(text, ScriptedPool(())).prepare((5,) * prompt_len, ask)
    response = Response(
        shape=COMPLETION,
        choices=[Choice(0, generation, Echo("5" * prompt_len, tuple(range(prompt_len))))],
        n=1,
        model="m",
        system_fingerprint="",
        num_spec_tokens=lambda _: 0,
        token_bytes=token_bytes,
        metrics=SpecMetrics.NONE,
        created=0,
        return_token_ids=False,
        num_prompt_logprobs=20,
    )
    piece = OutputChunk(
        index=0,
        token_ids=(1,) * num_tokens,
        text="1" * num_tokens,
        text_offsets=tuple(range(num_tokens)),
        logprobs=entries(num_tokens, 20),
        prompt_logprobs=entries(prompt_len - 1, 20),
        finish_reason=FinishReason.LENGTH,
    )
    return response, piece, threads


async def only(piece: OutputChunk) -> AsyncGenerator[tuple[int, OutputChunk]]:
    yield 0, piece


@pytest.mark.parametrize(
    ("prompt_len", "num_tokens", "is_aside"), [(2, 1, False), (400, 1, True), (2, 100, True)]
)
def test_a_whole_answer(prompt_len: int, num_tokens: int, is_aside: bool) -> None:
    text = fake_text_model()
    response, piece, threads = parts(text, prompt_len, num_tokens)
    told = asyncio.run(whole(response, only(piece), Lanes()))
    assert (threading.current_thread() not in threads) is is_aside
    assert (response.respond.seconds == 0) is is_aside, "the event loop's time is its own"
    assert told.headers["content-type"] == "application/json"
    assert json.loads(bytes(told.body)) == json.loads(json.dumps(response.whole([piece])))


@pytest.mark.parametrize(("prompt_len", "is_aside"), [(2, False), (400, True)])
def test_an_event(prompt_len: int, is_aside: bool) -> None:
    text = fake_text_model()
    response, piece, threads = parts(text, prompt_len, 1)

    async def told() -> list[str]:
        begun = await begin(only(piece), Admission(["1"]), 10)
        events = streamed(response, begun, Lanes())
        return [event async for event in events]

    event, end = asyncio.run(told())
    assert (threading.current_thread() not in threads) is is_aside
    assert (response.respond.seconds == 0) is is_aside, "the event loop's time is its own"
    assert (event, end) == (response.event(0, piece), END)
