"""What a GPU has to show: the one table of goals, and how each is read from the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from benchmarks.gpu_report.results import Result, Status

Read = Callable[[Result], float | None]
"""The figure; None where the result does not have it."""


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure of a step and what it has to be."""

    what: str
    step: str
    read: Read
    at_least: float | None = None
    at_most: float | None = None
    is_share: bool = False
    """Shown in per cent."""
    is_speed: bool = True
    """A rehearsal says nothing about it."""

    @property
    def bound(self) -> str:
        if self.at_least is not None:
            return f"at least {self.show(self.at_least)}"
        assert self.at_most is not None, "a goal has one bound"
        return f"at most {self.show(self.at_most)}"

    def show(self, figure: float) -> str:
        return f"{100 * figure:.4g} %" if self.is_share else f"{figure:.3g}"

    def is_met(self, figure: float) -> bool:
        if self.at_least is not None:
            return figure >= self.at_least
        return self.at_most is not None and figure <= self.at_most


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal and what came of it."""

    goal: Goal
    verdict: Verdict
    figure: float | None
    note: str
    """Why it was not measured, or what its step says of itself."""

    @property
    def shown(self) -> str:
        return "-" if self.figure is None else self.goal.show(self.figure)


def _of_bound(work: str) -> Read:
    """At the shortest context, recorded."""

    def read(result: Result) -> float | None:
        rows = result.rows("passes", work=work, mode="recorded", rows=8)
        return min(rows, key=_context)["of_bound"] if rows else None

    return read


def _context(row: Mapping[str, Any]) -> int:
    return int(row["context"])


def _over_plain(num_rows: int) -> Read:
    def read(result: Result) -> float | None:
        rows = result.rows(
            "decoding", numerics="fast", rows=num_rows, method="exspec", acceptance=0.7
        )
        return rows[0]["over_plain"] if rows else None

    return read


def _exact_over_fast(result: Result) -> float | None:
    """The lowest, over all numbers of rows, plain and speculative. 0 where it was refused."""
    if "exact numerics refused" in result.facts:
        return 0.0
    ratios = []
    for exact in result.rows("decoding", numerics="exact"):
        same = {name: exact[name] for name in ("rows", "method", "acceptance")}
        for fast in result.rows("decoding", numerics="fast", **same):
            ratios.append(exact["tokens_per_s"] / max(fast["tokens_per_s"], 1e-9))
    return min(ratios, default=None)


def _equal_ids(what: str) -> Read:
    def read(result: Result) -> float | None:
        rows = result.rows("token IDs", what=what)
        total = sum(row["prompts"] for row in rows)
        return sum(row["equal"] for row in rows) / total if total else None

    return read


def _over_without(result: Result) -> float | None:
    return min((row["over_without"] for row in result.rows("decoding")), default=None)


def _checks(result: Result) -> float | None:
    rows = result.rows("checks")
    return sum(row["holds"] for row in rows) / len(rows) if rows else None


def _tests(result: Result) -> float | None:
    passed, failed = (result.facts.get(name, 0) for name in ("passed", "failed"))
    return passed / (passed + failed) if passed + failed else None


def _memory(result: Result) -> float | None:
    return result.facts.get("taken over planned")


def _share(what: str, step: str, read: Read, least: float, *, is_speed: bool = True) -> Goal:
    return Goal(what=what, step=step, read=read, at_least=least, is_share=True, is_speed=is_speed)


GOALS = (
    _share(
        "Plain decoding at 8 rows, of its bandwidth bound", "roofline", _of_bound("decode"), 0.7
    ),
    _share("Verification at 8 rows, of its bandwidth bound", "roofline", _of_bound("verify"), 0.7),
    *(
        Goal(
            what=f"exspec over plain decoding, acceptance 0.7, {rows} rows",
            step="speed",
            read=_over_plain(rows),
            at_least=least,
        )
        for rows, least in {8: 1.6, 32: 1.35, 64: 1.15, 128: 1.0}.items()
    ),
    Goal(
        what="Exact over fast numerics, tokens/s, lowest of all rows",
        step="speed",
        read=_exact_over_fast,
        at_least=0.9,
    ),
    *(
        _share(
            f"Token IDs equal to plain decoding, {of}", step, _equal_ids(what), 1.0, is_speed=False
        )
        for of, step, what in (
            ("random weights, recorded passes", "exactness", "recorded passes"),
            ("random weights, eager passes", "exactness", "eager passes"),
            ("model with weights", "real_model", "model with weights"),
            ("the service", "served", "the service"),
        )
    ),
    Goal(
        what="The service with speculation over without, tokens/s, lowest of all rows",
        step="served",
        read=_over_without,
        at_least=0.97,
    ),
    _share("Self-checks that hold", "checks", _checks, 1.0, is_speed=False),
    _share("Tests for a GPU that pass", "gpu_tests", _tests, 1.0),
    Goal(
        what="Memory taken at the peak over memory planned",
        step="memory",
        read=_memory,
        at_most=1.0,
    ),
)


def judge(results: Mapping[str, Result], *, is_rehearsal: bool) -> list[Judged]:
    return [_judge(goal, results.get(goal.step), is_rehearsal) for goal in GOALS]


def _judge(goal: Goal, result: Result | None, is_rehearsal: bool) -> Judged:
    if result is None:
        return Judged(goal, Verdict.NOT_MEASURED, None, f"the step {goal.step} has not run")
    note = f"{goal.step}: {result.status}" if result.status is not Status.DONE else ""
    figure = goal.read(result)
    if is_rehearsal and goal.is_speed:
        return Judged(goal, Verdict.NOT_MEASURED, figure, "a rehearsal on a CPU")
    if figure is None:
        return Judged(goal, Verdict.NOT_MEASURED, None, note or f"{goal.step} has no such figure")
    verdict = Verdict.PASS if goal.is_met(figure) else Verdict.FAIL
    return Judged(goal, verdict, figure, note)
