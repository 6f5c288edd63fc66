"""Hours at half load: whether memory, files, threads or sequences grow."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import grpc

from benchmarks.harness.commands import StageReport
from benchmarks.overload.asking import ask, metadata
from benchmarks.overload.clients import stubs
from benchmarks.overload.held import OTHER, Held, held_by_kind
from benchmarks.overload.questions import Ids, Question, Server, Verdict, mixture, prompts
from benchmarks.overload.targets import ServiceOptions, ask_plainly
from benchmarks.overload.trend import Trend, second_half
from deployments.config.flags import flag, section
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

_NUM_PROMPTS = 16
_FIGURES = ("anon_mib", "num_files", "num_threads")
_LEAVES_EVERY = 10
"""One request in so many is abandoned by its client."""
_LEAVES_AFTER_S = 0.3
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOptions:
    """How long, and how much at a time."""

    minutes: float = flag(30.0, "Duration.")
    streams: int = flag(16, "At a time: half of what is admitted.")
    max_tokens: int = flag(48, "Of every answer.")
    every_s: float = flag(10.0, "Seconds between samples.", "--every")
    plot: Path | None = flag(None, "File for a picture.")
    output: Path | None = flag(None, "File for the figures, as JSON.")
    service: ServiceOptions = section(ServiceOptions, without=("max_queued",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The service at one moment."""

    at_s: float
    held: Mapping[str, Held]
    num_live: int
    num_slots: int

    def record(self) -> dict[str, Any]:
        held = {
            kind: [getattr(each, name) for name in _FIGURES] for kind, each in self.held.items()
        }
        return {"at_s": round(self.at_s, 1), "live": self.num_live, "slots": self.num_slots, **held}


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """The whole run."""

    samples: Sequence[Sample]
    counts: Mapping[str, int]
    left_over: tuple[int, int]
    """Sequences and slots when nobody asked any more."""

    @property
    def trends(self) -> dict[str, dict[str, Trend]]:
        """Of every kind that was there all the time."""
        kinds = set.intersection(*(set(sample.held) for sample in self.samples))
        seconds = [sample.at_s for sample in self.samples]
        return {
            kind: {
                name: second_half(seconds, [getattr(s.held[kind], name) for s in self.samples])
                for name in _FIGURES
            }
            for kind in sorted(kinds)
        }

    def broken_promises(self) -> list[str]:
        """Ray's own processes are told of and not judged: they come and go as it likes."""
        broken = [
            f"{kind}: {name} grows by {trend.per_hour:.2f} (+- {trend.error_per_hour:.2f}) an hour"
            for kind, row in self.trends.items()
            for name, trend in row.items()
            if trend.grows and kind != OTHER
        ]
        if any(self.left_over):
            broken.append(f"{self.left_over[0]} sequences and {self.left_over[1]} slots are left")
        bad = {name: n for name, n in self.counts.items() if name not in ("answered", "left")}
        return broken + [f"{number} requests: {name}" for name, number in bad.items()]


def run_soak(server: Server, root_pid: int, options: SoakOptions, report: StageReport) -> Soak:
    given = prompts(_NUM_PROMPTS)
    plain = ask_plainly(server, given, options.max_tokens)
    context = multiprocessing.get_context("spawn")
    stop, told = context.Event(), context.SimpleQueue()
    process = context.Process(target=ask_until, args=(server, options, plain, stop, told))
    process.start()
    try:
        samples = _samples(server, root_pid, options, report)
    finally:
        stop.set()
        counts = told.get() if process.is_alive() else {"the clients died": 1}
        process.join()
    return Soak(samples=samples, counts=counts, left_over=_left_over(server))


def _samples(
    server: Server, root_pid: int, options: SoakOptions, report: StageReport
) -> list[Sample]:
    started = time.monotonic()
    num_samples = max(6, round(60 * options.minutes / options.every_s))
    samples = []
    for number in range(1, num_samples + 1):
        time.sleep(max(0.0, started + number * options.every_s - time.monotonic()))
        live, slots = live_and_slots(server)
        samples.append(
            Sample(
                at_s=time.monotonic() - started,
                held=held_by_kind(root_pid),
                num_live=live,
                num_slots=slots,
            )
        )
        report("samples", number, num_samples)
    return samples


def live_and_slots(server: Server) -> tuple[int, int]:
    """Sequences that have not ended, and slots that replicas say they hold."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = pb_grpc.GenerationServiceStub(channel)
        status = stub.PoolStatus(pb.PoolStatusRequest(), timeout=60, metadata=metadata(server))
    live = status.num_waiting + status.num_running
    return live, sum(replica.num_slots for replica in status.replicas)


def _left_over(server: Server) -> tuple[int, int]:
    """As soon as nothing is, or after a while."""
    deadline = time.monotonic() + 30
    while any(left := live_and_slots(server)) and time.monotonic() < deadline:
        time.sleep(1)
    return left


def ask_until(
    server: Server,
    options: SoakOptions,
    plain: Mapping[Ids, Ids],
    stop: Event,
    told: SimpleQueue[dict[str, int]],
) -> None:
    """The client process."""
    told.put(dict(asyncio.run(_ask_until(server, options, plain, stop))))


async def _ask_until(
    server: Server, options: SoakOptions, plain: Mapping[Ids, Ids], stop: Event
) -> Counter[str]:
    counts: Counter[str] = Counter()
    questions = itertools.cycle(mixture(2, 1, list(plain), options.max_tokens))
    numbered = enumerate(_varied(questions, list(plain)))
    async with stubs(server, options.streams) as channels:

        async def client(stub: pb_grpc.GenerationServiceStub) -> None:
            while not stop.is_set():
                number, question = next(numbered)
                counts[await _ask(server, stub, question, number, plain)] += 1

        tasks = (client(channels[place % len(channels)]) for place in range(options.streams))
        await asyncio.gather(*tasks)
    return counts


def _varied(questions: Any, given: Sequence[Ids]) -> Any:
    """Every way with every prompt."""
    for place, question in enumerate(questions):
        yield Question(
            way=question.way,
            prompt=given[place % len(given)],
            max_tokens=1 + place % question.max_tokens,
        )


async def _ask(
    server: Server,
    stub: pb_grpc.GenerationServiceStub,
    question: Question,
    number: int,
    plain: Mapping[Ids, Ids],
) -> str:
    """How it ended, in a word for the report."""
    if number % _LEAVES_EVERY == 0:
        await ask(server, stub, question, _LEAVES_AFTER_S)
        return "left"
    outcome = await ask(server, stub, question, _TIMEOUT_S)
    if outcome.verdict is not Verdict.ANSWERED:
        return f"{outcome.verdict.value}: {outcome.why}"
    expected = plain[question.prompt][: question.max_tokens]
    return "answered" if outcome.token_ids == expected else "WRONG"
