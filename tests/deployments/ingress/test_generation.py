"""Nobody waits in vain: not for the long texts of others, not for a coordinator that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from deployments.ingress.generation import GenerationService
from deployments.ingress.generation_request import GenerationRequest
from deployments.ingress.scheduler_client import SchedulerClient
from deployments.observability.metrics.request_times import IngressTimes
from deployments.wire.endpoint import Endpoint
from specdec_core.config import SpeculationConfig
from specdec_core.request import FinishReason, Request, TokenEvent
from tests.deployments.fake_text import fake_text_model


class WatchedText:
    """Notes the thread of each call."""

    answers = None
    hidden_tokens: Mapping[int, str] = MappingProxyType({})

    end_token_ids = frozenset({0})

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        self.threads.add(threading.current_thread())
        return (1,) * len(text)

    def check_ids(self, ids: Sequence[int], name: str) -> tuple[int, ...]:
        return tuple(ids)

    def decode_all(self, ids: Sequence[int]) -> str:
        self.threads.add(threading.current_thread())
        return "x" * len(ids)


async def unreachable() -> Endpoint:
    raise ConnectionError


@pytest.mark.parametrize(("length", "is_aside"), [(10, False), (100_000, True)])
def test_what_takes_long_runs_in_a_thread_of_its_own(length: int, is_aside: bool) -> None:
    text: Any = WatchedText()
    service = GenerationService(
        text, SchedulerClient(unreachable), model_name="fake", speculation=SpeculationConfig()
    )
    assert len(asyncio.run(service.encode("x" * length))) == length
    assert len(asyncio.run(service.decode_all([1] * length, "ids"))) == length
    assert (threading.current_thread() not in text.threads) is is_aside


class HangingPool:
    """Emits four tokens and is not heard of again."""

    def __init__(self) -> None:
        self.state = None
        self.times = IngressTimes()

    def new_request_id(self) -> str:
        return "hanging"

    async def generate(self, request: Request, **_: Any) -> AsyncIterator[TokenEvent]:
        yield TokenEvent(request_id=request.request_id, index=0, token_ids=(1, 2, 3, 4))
        await asyncio.Event().wait()

    async def abort(self, request_id: str) -> bool:
        return await asyncio.Event().wait()


async def test_a_stop_string_ends_the_answer_though_the_coordinator_hangs() -> None:
    pool: Any = HangingPool()
    text = fake_text_model()
    service = GenerationService(
        text, pool, model_name="fake", speculation=SpeculationConfig(), stats_wait_s=0.01
    )
    asked = service.prepare((5,), GenerationRequest(stop=[text.decode((2, 3))]))
    (piece,) = [piece async for piece in service.run(asked)]
    assert (piece.text, piece.finish_reason) == (text.decode((1,)), FinishReason.STOP)


def test_what_a_request_leaves_open_follows_the_models_own_defaults() -> None:
    pool: Any = HangingPool()
    own = {"temperature": 0.5, "top_k": 7, "max_tokens": 30}
    service = GenerationService(
        fake_text_model(),
        pool,
        model_name="fake",
        speculation=SpeculationConfig(),
        sampling_defaults=own,
    )
    params = service.prepare((5,), GenerationRequest()).request.params
    assert (params.temperature, params.top_k, params.max_tokens) == (0.5, 7, 30)
    given = {"temperature": 0.0, "top_k": -1, "max_tokens": 60}
    params = service.prepare((5,), GenerationRequest(sampling=given)).request.params
    assert (params.temperature, params.top_k, params.max_tokens) == (0.0, 0, 60)
    assert service.prepare((5,) * 500, GenerationRequest()).request.params.max_tokens == 12


class _TellingPool:
    """Emits a token whenever it is told to."""

    state = None

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.times = IngressTimes()
        self.num_left = 0

    def new_request_id(self) -> str:
        return "telling"

    async def generate(self, request: Request, **_: Any) -> AsyncIterator[TokenEvent]:
        try:
            for index in range(request.params.max_tokens):
                await self.told.wait()
                self.told.clear()
                yield TokenEvent(request_id=request.request_id, index=index, token_ids=(1,))
        finally:
            self.num_left += 1


@pytest.mark.parametrize("num_turns", range(5))
async def test_a_client_that_leaves_as_a_token_comes_has_left(num_turns: int) -> None:
    """Turns of the loop between the token and the departure."""
    pool: Any = _TellingPool()
    service = GenerationService(
        fake_text_model(), pool, model_name="fake", speculation=SpeculationConfig()
    )
    asked = service.prepare((5,), GenerationRequest(timeout_s=60.0))

    async def listen() -> None:
        async for _ in service.run(asked):
            pass

    client = asyncio.create_task(listen())
    await asyncio.sleep(0.01)
    pool.told.set()
    for _ in range(num_turns):
        await asyncio.sleep(0)
    client.cancel()
    await asyncio.wait({client}, timeout=1)
    assert client.done()
    assert pool.num_left == 1
