"""Thousands of requests at one moment: each is answered rightly or refused politely, and memory
comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.commands import StageReport
from benchmarks.overload.clients import ask_at_once
from benchmarks.overload.held import Held, held_by_kind, ours
from benchmarks.overload.questions import Server, mixture, prompts
from benchmarks.overload.targets import ServiceOptions, ask_plainly
from benchmarks.overload.verdicts import Found, judge
from deployments.config.flags import flag, section

GROWTH_LIMIT = 0.05
"""Share of the resident memory that may stay behind."""
_SETTLING_S = 40.0
_SETTLED_S = 12.0
"""Longer than the service waits before it gives memory back."""
_STEADY = 0.005
_POLL_S = 2.0
_NUM_PROMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstOptions:
    """What is sent, and to which service."""

    num_http: int = flag(2000, "HTTP requests, half of them streams.", "--http")
    num_grpc: int = flag(2000, "gRPC streams.", "--grpc")
    max_tokens: int = flag(6, "Of every answer.")
    num_bursts: int = flag(2, "One after the other.", "--bursts")
    """What a first burst leaves behind is counted too; the second shows whether it goes on."""
    num_processes: int = flag(4, "Of clients.", "--processes")
    timeout_s: float = flag(200.0, "Seconds that a client waits at most.", "--timeout")
    output: Path | None = flag(None, "File for the figures, as JSON.")
    service: ServiceOptions = section(ServiceOptions, max_queued=256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """One burst and what the service's processes held around it."""

    found: Found
    duration_s: float
    before: Mapping[str, Held]
    peak: Held
    """Of the kinds that serve."""
    after: Mapping[str, Held]

    @property
    def growth(self) -> float:
        """Share of the memory before that is not given back."""
        return ours(self.after).pss_mib / ours(self.before).pss_mib - 1.0

    def broken_promises(self) -> list[str]:
        broken = self.found.broken_promises()
        if self.growth > GROWTH_LIMIT:
            broken.append(f"resident memory stays {100 * self.growth:.1f} % higher")
        return broken

    def record(self) -> dict[str, Any]:
        return {
            **self.found.record(),
            "duration_s": round(self.duration_s, 1),
            "before": {kind: asdict(held) for kind, held in self.before.items()},
            "peak": asdict(self.peak),
            "after": {kind: asdict(held) for kind, held in self.after.items()},
            "memory_growth": round(self.growth, 4),
            "broken_promises": self.broken_promises(),
        }


def run_bursts(
    server: Server, root_pid: int, options: BurstOptions, report: StageReport
) -> Iterator[Burst]:
    """One after the other against a service below `root_pid`."""
    given = prompts(_NUM_PROMPTS)
    plain = ask_plainly(server, given, options.max_tokens)
    questions = mixture(options.num_http, options.num_grpc, given, options.max_tokens)
    for number in range(1, options.num_bursts + 1):
        before = held_by_kind(root_pid)
        peak = _Peak(root_pid)

        def watch(num_ended: int, number: int = number, peak: _Peak = peak) -> None:
            peak.look()
            report(f"burst {number}", num_ended, len(questions))

        started = time.perf_counter()
        outcomes = ask_at_once(
            server,
            questions,
            num_processes=options.num_processes,
            timeout_s=options.timeout_s,
            watch=watch,
        )
        yield Burst(
            found=judge(outcomes, plain),
            duration_s=time.perf_counter() - started,
            before=before,
            peak=peak.held,
            after=_settled(root_pid, before),
        )


class _Peak:
    """The most that was seen; looking takes the machine some milliseconds, so it is seldom."""

    def __init__(self, root_pid: int) -> None:
        self.held = Held()
        self._root_pid = root_pid
        self._next_s = 0.0

    def look(self) -> None:
        if time.monotonic() < self._next_s:
            return
        now = ours(held_by_kind(self._root_pid))
        self.held = max(self.held, now, key=lambda held: held.pss_mib)
        self._next_s = time.monotonic() + _POLL_S


def _settled(root_pid: int, before: Mapping[str, Held]) -> Mapping[str, Held]:
    """When it is neither above the limit nor falling any more, or after a while."""
    limit = ours(before).pss_mib * (1 + GROWTH_LIMIT)
    deadline = time.monotonic() + _SETTLING_S
    held = held_by_kind(root_pid)
    while time.monotonic() < deadline:
        time.sleep(_SETTLED_S)
        earlier, held = held, held_by_kind(root_pid)
        is_steady = ours(held).pss_mib > (1 - _STEADY) * ours(earlier).pss_mib
        if is_steady and ours(held).pss_mib <= limit:
            break
    return held
