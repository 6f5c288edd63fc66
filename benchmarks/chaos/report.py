"""The result as JSON and as a table, and what of it breaks the promise."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.chaos.faults import Blow, Fault
from benchmarks.chaos.findings import Comparison
from benchmarks.chaos.recovery import Recovery
from benchmarks.harness.processes import Kind

NEXT_TOKEN_LIMITS_S = {Kind.DRAFT: 1.0, Kind.COORDINATOR: 15.0}
"""From the kill until every stream under way has had its next token."""
AFTER_READY_LIMIT_S = {Kind.TARGET: 10.0}
"""From the restarted one's registration, without the seconds that other faults took."""

_TIMES = ("process_s", "ready_s", "next_token_s", "slowest_stream_s", "after_ready_s")
_WIDTH = 118


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A whole run of the harness."""

    settings: dict[str, Any]
    cycle: Sequence[Fault]
    """What was to strike."""
    comparison: Comparison
    recoveries: Sequence[Recovery]
    undisturbed_s: float
    disturbed_s: float
    calm_waits_s: Sequence[float]
    """See recovery.calm_waits."""
    is_whole: bool
    """Every process and every replica was there again at the end."""
    held: dict[str, int]
    """By the pool, when nobody asked for anything."""
    left: Sequence[str]
    """Processes that outlived the service."""

    @property
    def problems(self) -> list[str]:
        """Why the promise is broken; empty: it is kept."""
        comparison = self.comparison
        found = [f"request {number} differs" for number in comparison.differing]
        found += [f"request {number} was told a wrong beginning" for number in comparison.changed]
        found += [
            f"{one.way} failed: {one.failure.kind} {one.failure.message} ({one.fault})"
            for one in comparison.failed
            if not one.is_allowed
        ]
        struck = {recovery.strike.fault for recovery in self.recoveries}
        found += [f"there was no {fault}" for fault in self.cycle if fault not in struck]
        found += [problem for recovery in self.recoveries for problem in _too_slow(recovery)]
        found += [] if self.is_whole else ["not every process and replica came back"]
        found += [f"{count} {name} left in the pool" for name, count in self.held.items()]
        found += [f"left running: {title}" for title in self.left]
        return found

    def record(self) -> dict[str, Any]:
        return {
            **self.settings,
            "answers": self.comparison.num_answers,
            "identical": self.comparison.num_identical,
            "undisturbed_s": round(self.undisturbed_s, 1),
            "disturbed_s": round(self.disturbed_s, 1),
            "undisturbed_slowest_stream_s": _spread(self.calm_waits_s),
            "failed_attempts": _failures(self.comparison),
            "faults": [_fault_record(recovery) for recovery in self.recoveries],
            "held": self.held,
            "left": list(self.left),
            "problems": self.problems,
        }


def _too_slow(recovery: Recovery) -> list[str]:
    """Of kills that struck a whole service: what another fault delays is not this one's."""
    fault = recovery.strike.fault
    if fault.blow is not Blow.KILL or recovery.shadow:
        return []
    checks = (
        ("slowest stream", recovery.slowest_stream_s, NEXT_TOKEN_LIMITS_S.get(fault.kind)),
        ("next token once ready", recovery.own_after_ready_s, AFTER_READY_LIMIT_S.get(fault.kind)),
    )
    return [
        f"{fault}: {name} after {taken_s:.1f} s, the limit is {limit_s:g}"
        for name, taken_s, limit_s in checks
        if limit_s is not None and taken_s is not None and taken_s > limit_s
    ]


def _failures(comparison: Comparison) -> list[dict[str, Any]]:
    counts = Counter(
        (one.fault, one.way, one.failure.kind, one.is_allowed) for one in comparison.failed
    )
    messages = {(one.fault, one.failure.kind): one.failure.message for one in comparison.failed}
    return [
        {
            "fault": fault,
            "way": way,
            "kind": kind,
            "allowed": is_allowed,
            "count": count,
            "message": messages[fault, kind],
        }
        for (fault, way, kind, is_allowed), count in counts.items()
    ]


def _fault_record(recovery: Recovery) -> dict[str, Any]:
    told = {name: _rounded(getattr(recovery, name)) for name in (*_TIMES, "own_after_ready_s")}
    return {"fault": str(recovery.strike.fault), **told, "shadow": list(recovery.shadow)}


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    """Its middle and its upper end; empty where there is nothing."""
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    if not ordered:
        return {}
    return {n: round(ordered[round(p * (len(ordered) - 1))], 2) for n, p in shares.items()}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def table(result: Result) -> Table:
    calm = ", ".join(f"{n} {s}" for n, s in _spread(result.calm_waits_s).items())
    caption = f"seconds: median (greatest); slowest stream without faults: {calm or '-'}"
    found = Table(title=_title(result), caption=caption, width=_WIDTH)
    found.add_column("fault")
    for name in ("times", "failed", "process", "ready", "next token", "slowest", "once ready"):
        found.add_column(name, justify="right")
    failed = Counter(one.fault for one in result.comparison.failed)
    for fault in result.cycle:
        own = [one for one in result.recoveries if one.strike.fault == fault]
        found.add_row(str(fault), str(len(own)), str(failed[str(fault)]), *_cells(fault, own))
    return found


def _cells(fault: Fault, own: Sequence[Recovery]) -> list[str]:
    return [_cell([t for one in own if (t := getattr(one, name)) is not None]) for name in _TIMES]


def _cell(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    return f"{statistics.median(seconds):.1f} ({max(seconds):.1f})"


def _title(result: Result) -> str:
    comparison = result.comparison
    return (
        f"{comparison.num_identical} of {comparison.num_answers} answers identical, "
        f"{len(comparison.failed)} attempts failed, {len(result.problems)} problems"
    )
