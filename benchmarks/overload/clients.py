"""Client processes: each asks its share of the questions, all at one moment."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import Synchronized
from typing import NamedTuple

import grpc

from benchmarks.overload.asking import ask
from benchmarks.overload.questions import Outcome, Question, Server
from deployments.wire.endpoint import MESSAGE_OPTIONS
from specdec.v1 import generation_pb2_grpc as pb_grpc

_START_S = 3.0
"""For the processes to start; then all send at once."""
_STREAMS_PER_CHANNEL = 100
_POLL_S = 0.5

_num_ended: Synchronized[int]
"""Of all processes together; set in each by `_begin`."""


class Share(NamedTuple):
    """What one process asks, and when (by the machine's clock)."""

    server: Server
    questions: Sequence[Question]
    timeout_s: float
    start_at_s: float


def ask_at_once(
    server: Server,
    questions: Sequence[Question],
    *,
    num_processes: int,
    timeout_s: float,
    watch: Callable[[int], None],
) -> list[Outcome]:
    """Outcomes of all; `watch` is called twice a second with the number that have ended."""
    context = multiprocessing.get_context("spawn")
    ended = context.Value("i", 0)
    start_at_s = time.time() + _START_S
    shares = [
        Share(server, questions[place::num_processes], timeout_s, start_at_s)
        for place in range(num_processes)
    ]
    with ProcessPoolExecutor(
        num_processes, mp_context=context, initializer=_begin, initargs=(ended,)
    ) as processes:
        futures = [processes.submit(ask_share, share) for share in shares]
        while wait(futures, _POLL_S).not_done:
            watch(ended.value)
        return [outcome for future in futures for outcome in future.result()]


def _begin(ended: Synchronized[int]) -> None:
    global _num_ended
    _num_ended = ended


def ask_share(share: Share) -> list[Outcome]:
    """One process's part."""
    return asyncio.run(_ask_share(share))


async def _ask_share(share: Share) -> list[Outcome]:
    async with stubs(share.server, len(share.questions)) as channels:
        await asyncio.sleep(max(0.0, share.start_at_s - time.time()))
        calls = [
            _counted(share, channels[place % len(channels)], question)
            for place, question in enumerate(share.questions)
        ]
        return list(await asyncio.gather(*calls))


async def _counted(
    share: Share, stub: pb_grpc.GenerationServiceStub, question: Question
) -> Outcome:
    outcome = await ask(share.server, stub, question, share.timeout_s)
    with _num_ended.get_lock():
        _num_ended.value += 1
    return outcome


@contextlib.asynccontextmanager
async def stubs(
    server: Server, num_streams: int
) -> AsyncIterator[list[pb_grpc.GenerationServiceStub]]:
    """Connections of their own for every hundred streams, as that many clients would have."""
    options = (*MESSAGE_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    async with contextlib.AsyncExitStack() as stack:
        yield [
            pb_grpc.GenerationServiceStub(
                await stack.enter_async_context(
                    grpc.aio.insecure_channel(server.grpc_address, options=options)
                )
            )
            for _ in range(1 + num_streams // _STREAMS_PER_CHANNEL)
        ]
