"""One decoding of a workload by one algorithm, and several of them in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.engine import Engine
from specdec_core.request import FinishReason, Request

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What came out, in input order, and what it took."""

    answers: tuple[tuple[int, ...], ...]
    seconds: float
    stats: AlgorithmStats

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.answers))

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


def decode(engine: Engine, requests: Sequence[Request]) -> Decoded:
    """Run all requests through a fresh engine. Raises RuntimeError when one of them failed."""
    answers: dict[str, list[int]] = {request.request_id: [] for request in requests}
    started = time.perf_counter()
    for event in engine.generate(requests):
        answers[event.request_id] += event.token_ids
        if event.finish_reason is FinishReason.ERROR:
            raise RuntimeError(f"request {event.request_id} failed: {event.error}")
    return Decoded(
        answers=tuple(tuple(answer) for answer in answers.values()),
        seconds=time.perf_counter() - started,
        stats=engine.stats,
    )


def in_turns(runs: Mapping[Key, Callable[[], Decoded]], repeats: int) -> dict[Key, list[Decoded]]:
    """Every run `repeats` times, one after the other in each turn: a busy spell slows them all."""
    done: dict[Key, list[Decoded]] = {key: [] for key in runs}
    for _ in range(repeats):
        for key, run in runs.items():
            done[key].append(run())
    return done
