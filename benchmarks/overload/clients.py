"""Client processes: each asks its share of the questions, all at one moment."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event, Semaphore
from typing import NamedTuple

import grpc

from benchmarks.overload.asking import ask
from benchmarks.overload.questions import Outcome, Question, Server
from deployments.wire.endpoint import MESSAGE_OPTIONS
from specdec.v1 import generation_pb2_grpc as pb_grpc

_START_S = 120.0
"""Longest that a process waits for the start of the others."""
_STREAMS_PER_CHANNEL = 100
_POLL_S = 0.5


class Together(NamedTuple):
    """What all processes share."""

    num_ended: Synchronized[int]
    """Questions."""
    ready: Semaphore
    """Released by each process that waits for the start."""
    start: Event


_together: Together
"""Set in each process by `_begin`."""


class Share(NamedTuple):
    """What one process asks."""

    server: Server
    questions: Sequence[Question]
    timeout_s: float


def ask_at_once(
    server: Server,
    questions: Sequence[Question],
    *,
    num_processes: int,
    timeout_s: float,
    watch: Callable[[int], None],
    before_start: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Outcomes of all; `watch` is called twice a second with the number that have ended,
    `before_start` when all processes are there and nothing has been sent."""
    context = multiprocessing.get_context("spawn")
    together = Together(context.Value("i", 0), context.Semaphore(0), context.Event())
    shares = [
        Share(server, questions[place::num_processes], timeout_s) for place in range(num_processes)
    ]
    with ProcessPoolExecutor(
        num_processes, mp_context=context, initializer=_begin, initargs=(together,)
    ) as processes:
        futures = [processes.submit(ask_share, share) for share in shares]
        try:
            _until_ready(together.ready, futures)
            before_start()
        finally:
            together.start.set()
        while wait(futures, _POLL_S).not_done:
            watch(together.num_ended.value)
        return [outcome for future in futures for outcome in future.result()]


def _until_ready(ready: Semaphore, futures: Sequence[Future[list[Outcome]]]) -> None:
    """Every process waits for the start; raises what has ended one before."""
    for _ in futures:
        while not ready.acquire(timeout=_POLL_S):
            for future in futures:
                if future.done():
                    future.result()


def _begin(together: Together) -> None:
    global _together
    _together = together


def ask_share(share: Share) -> list[Outcome]:
    """One process's part."""
    return asyncio.run(_ask_share(share))


async def _ask_share(share: Share) -> list[Outcome]:
    async with stubs(share.server, len(share.questions)) as channels:
        _together.ready.release()
        if not _together.start.wait(_START_S):
            raise TimeoutError(f"the others have not started within {_START_S:g} s")
        calls = [
            _counted(share, channels[place % len(channels)], question)
            for place, question in enumerate(share.questions)
        ]
        return list(await asyncio.gather(*calls))


async def _counted(
    share: Share, stub: pb_grpc.GenerationServiceStub, question: Question
) -> Outcome:
    outcome = await ask(share.server, stub, question, share.timeout_s)
    with _together.num_ended.get_lock():
        _together.num_ended.value += 1
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
