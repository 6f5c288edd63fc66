"""Keeps so many requests under way, and asks again where an attempt failed, as clients do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, cycle, takewhile

from benchmarks.chaos.answers import Answer, Attempt, AttemptError, Failure
from benchmarks.chaos.asked import Asked
from benchmarks.chaos.grpc_client import GrpcClient
from benchmarks.chaos.http_client import HttpClient

_ATTEMPT_S = 180.0
"""An attempt of which nothing more is heard by then is a defect."""
_ANSWER_S = 300.0
_PAUSE_S = 0.5

Report = Callable[[int], None]
"""Called with how many have ended."""


@dataclass(frozen=True, slots=True)
class Clients:
    """One of each protocol."""

    http: HttpClient
    grpc: GrpcClient

    async def ask(self, attempt: Attempt) -> None:
        client = self.grpc if attempt.asked.way.is_grpc else self.http
        await client.ask(attempt)


@dataclass(eq=False, slots=True)
class Load:
    """A run: what was asked, and every answer as it came."""

    clients: Clients
    concurrency: int
    report: Report
    answers: list[Answer] = field(default_factory=list)
    num_ended: int = 0

    async def run(self, asked: Iterable[Asked]) -> None:
        """Ask everything, in order; what `asked` yields last may depend on the time."""
        waiting = iter(asked)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.concurrency):
                group.create_task(self._work(waiting))

    async def _work(self, waiting: Iterable[Asked]) -> None:
        for one in waiting:
            await self._answer(one)
            self.num_ended += 1
            self.report(self.num_ended)

    async def _answer(self, asked: Asked) -> None:
        answer = Answer(asked)
        self.answers.append(answer)
        give_up_s = time.monotonic() + _ANSWER_S
        while True:
            attempt = Attempt(asked)
            answer.attempts.append(attempt)
            await self._attempt(attempt)
            if attempt.failure is None or time.monotonic() > give_up_s:
                return
            await asyncio.sleep(_PAUSE_S)

    async def _attempt(self, attempt: Attempt) -> None:
        try:
            async with asyncio.timeout(_ATTEMPT_S):
                await self.clients.ask(attempt)
        except AttemptError as error:
            attempt.failure = error.failure
        except TimeoutError:
            message = f"not ended after {_ATTEMPT_S:.0f} s"
            attempt.failure = Failure(kind="silent", message=message, says_retry=False)
        attempt.ended_s = time.monotonic()


def until(asked: list[Asked], is_over: Callable[[], bool]) -> Iterable[Asked]:
    """All of them once, and from the start again until `is_over`."""
    return chain(asked, takewhile(lambda _: not is_over(), cycle(asked)))
