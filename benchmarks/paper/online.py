"""Table 6: latencies under Poisson arrivals, in virtual time.

The clock advances by the measured time of every step and jumps over the spells without work, so
that a run takes no longer than its computing and no wall clock disturbs it. On a CPU with one
thread a step is measured in processor time, which other processes do not lengthen.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

import torch

from benchmarks.paper.pairs import Pair
from benchmarks.paper.records import Row
from benchmarks.paper.sweep import Budget, Cell, Report, not_run, refusal
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.request import FinishReason, Request, TokenEvent

_TICK_S = 1e-4
"""A step takes at least this long: the clock must move while the pool waits for company."""


class Timer(StrEnum):
    """What measures a step."""

    PROCESSOR = "processor"
    WALL = "wall"

    @property
    def read(self) -> Callable[[], float]:
        return time.process_time if self is Timer.PROCESSOR else time.perf_counter


@dataclass(eq=False, slots=True)
class VirtualClock:
    """Seconds since the run began."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False, slots=True)
class Life:
    """When a request arrived and when it heard something."""

    arrived_at: float
    heard_at: list[float] = field(default_factory=list)
    num_tokens: int = 0

    @property
    def latency(self) -> float:
        return self.heard_at[-1] - self.arrived_at

    @property
    def first_token_s(self) -> float:
        return self.heard_at[0] - self.arrived_at

    @property
    def longest_silence(self) -> float:
        """Between two events, the wait for the first one included."""
        times = [self.arrived_at, *self.heard_at]
        return max(b - a for a, b in pairwise(times))


def measure(
    pair: Pair,
    algorithms: Sequence[AlgorithmName],
    batch_size: int,
    load: float,
    timer: Timer,
    *,
    seed: int,
    budget: Budget,
    report: Report,
) -> Iterator[Row]:
    """All algorithms under the same arrivals, `load` times what exspec completes at best."""
    if budget.is_spent:
        yield from (not_run(Cell(name, batch_size), budget.reason) for name in algorithms)
        return
    requests = pair.workload.requests()

    def run(algorithm: AlgorithmName, arrivals: Sequence[float]) -> list[Life]:
        report(f"{algorithm} B={batch_size} online")
        return serve(
            lambda clock: pair.engine(algorithm, batch_size, clock=clock),
            requests,
            arrivals,
            timer.read,
        )

    at_once = run(AlgorithmName.EXSPEC, [0.0] * len(requests))
    rate = load * len(requests) / max(life.heard_at[-1] for life in at_once)
    arrivals = poisson_arrivals(len(requests), rate, seed)
    for cell in (Cell(algorithm, batch_size) for algorithm in algorithms):
        refused = refusal(pair, cell)
        if refused is not None:
            yield not_run(cell, refused)
            continue
        measured = figures(run(cell.algorithm, arrivals))
        yield {**cell.coordinates, "requests_per_second": rate, **measured}


def default_timer(device: torch.device) -> Timer:
    """Processor time says nothing of what a GPU does."""
    return Timer.PROCESSOR if device.type == "cpu" else Timer.WALL


def poisson_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Seconds; the first request arrives at 0."""
    rng = random.Random(f"arrivals/{seed}")
    times = [0.0]
    while len(times) < count:
        times.append(times[-1] + rng.expovariate(rate))
    return times[:count]


def serve(
    make_engine: Callable[[Callable[[], float]], Engine],
    requests: Sequence[Request],
    arrivals: Sequence[float],
    timer: Callable[[], float],
) -> list[Life]:
    """Let every request arrive at its time; the lives of all, in order of the requests."""
    clock = VirtualClock()
    engine = make_engine(clock)
    lives = {r.request_id: Life(at) for r, at in zip(requests, arrivals, strict=True)}
    waiting = sorted(requests, key=lambda request: lives[request.request_id].arrived_at)
    while waiting or engine.has_work:
        if not engine.has_work:
            clock.now = max(clock.now, lives[waiting[0].request_id].arrived_at)
        while waiting and lives[waiting[0].request_id].arrived_at <= clock.now:
            engine.add_request(waiting.pop(0))
        started = timer()
        events = engine.step()
        clock.now += max(timer() - started, _TICK_S)
        for event in events:
            _hear(lives[event.request_id], event, clock.now)
    return list(lives.values())


def _hear(life: Life, event: TokenEvent, now: float) -> None:
    assert event.finish_reason is not FinishReason.ERROR, event.error
    life.heard_at.append(now)
    life.num_tokens += len(event.token_ids)


def figures(lives: Sequence[Life]) -> Row:
    latencies = [life.latency for life in lives]
    first = [life.first_token_s for life in lives]
    ended = max(life.heard_at[-1] for life in lives)
    return {
        "num_requests": len(lives),
        "latency_s": {f"p{q}": percentile(latencies, q) for q in (50, 90, 99)},
        "first_token_s": {f"p{q}": percentile(first, q) for q in (50, 90, 99)},
        "longest_silence_s": max(life.longest_silence for life in lives),
        "tokens_per_second": sum(life.num_tokens for life in lives) / ended,
    }


def percentile(values: Sequence[float], q: float) -> float:
    """Between the two nearest ranks, by their distance."""
    ranked = sorted(values)
    place = (len(ranked) - 1) * q / 100
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)
