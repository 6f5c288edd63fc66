"""Runs many seeds in a row, and reports what was found and what never happened."""

from __future__ import annotations

import gc
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from deployments.simulation.client import Outcome
from deployments.simulation.faults import FaultKind, plan_faults
from deployments.simulation.invariants.clocks import no_clocks
from deployments.simulation.invariants.surprises import no_surprises
from deployments.simulation.record import MESSAGE_KINDS, Record
from deployments.simulation.transitions import TRANSITIONS
from deployments.simulation.trial import Trial
from deployments.simulation.virtual_loop import leave_loops

_YOUNGEST = 0
"""Garbage collector generation that holds a world's objects. No earlier collection has seen
them."""
SEEDS_FOR_COVERAGE = 500
"""Minimum number of seeds after which everything that can happen must have happened."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one seed."""

    seed: int
    violation: str | None
    num_requests: int
    num_events: int
    record: Record


@dataclass(eq=False, slots=True)
class Campaign:
    """Totals over seeds."""

    num_seeds: int = 0
    num_requests: int = 0
    num_events: int = 0
    violations: list[Verdict] = field(default_factory=list)
    least_faults: int | None = None
    least_kinds: int | None = None
    faults: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    transitions: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        record = verdict.record
        self.num_seeds += 1
        self.num_requests += verdict.num_requests
        self.num_events += verdict.num_events
        self.faults += record.faults
        self.messages += record.messages
        self.transitions += record.transitions
        self.outcomes += record.outcomes
        if verdict.violation is not None:
            self.violations.append(verdict)
            return
        planned = record.faults.total() - record.faults[FaultKind.CLIENT_CANCELS]
        self.least_faults = _least(self.least_faults, planned)
        self.least_kinds = _least(self.least_kinds, len(record.faults))

    @property
    def never_hit(self) -> list[str]:
        """Kinds that never happened; empty until `SEEDS_FOR_COVERAGE` seeds have run."""
        if self.num_seeds < SEEDS_FOR_COVERAGE:
            return []
        return [
            *(f"fault {kind}" for kind in FaultKind if not self.faults[kind]),
            *(f"message {kind}" for kind in MESSAGE_KINDS if not self.messages[kind]),
            *(f"outcome {outcome}" for outcome in Outcome if not self.outcomes[outcome]),
            *(f"transition {a} -> {b}" for a, b in TRANSITIONS if not self.transitions[a, b]),
        ]

    @property
    def never_foreseen(self) -> list[str]:
        """Transitions that are not in the table of transitions."""
        return [f"transition {a} -> {b}" for a, b in self.transitions if (a, b) not in TRANSITIONS]

    @property
    def is_clean(self) -> bool:
        return not (self.violations or self.never_hit or self.never_foreseen)

    def report(self, seconds: float, cpu_seconds: float) -> dict[str, Any]:
        """Return the report. `cpu_seconds` excludes the time that other processes took of the
        core."""
        return {
            "num_seeds": self.num_seeds,
            "seconds": round(seconds, 3),
            "seeds_per_second": round(self.num_seeds / seconds, 2) if seconds else None,
            "seeds_per_cpu_second": round(self.num_seeds / cpu_seconds, 2) if cpu_seconds else None,
            "num_requests": self.num_requests,
            "num_events": self.num_events,
            "least_faults_of_a_seed": self.least_faults,
            "least_fault_kinds_of_a_seed": self.least_kinds,
            "violations": [{"seed": v.seed, "violation": v.violation} for v in self.violations],
            "never_hit": self.never_hit,
            "never_foreseen": self.never_foreseen,
            "faults": dict(sorted(self.faults.items())),
            "messages": dict(sorted(self.messages.items())),
            "transitions": {f"{a} -> {b}": n for (a, b), n in sorted(self.transitions.items())},
            "outcomes": dict(sorted(self.outcomes.items())),
        }


def run_seed(seed: int, *, traces: bool = False) -> Verdict:
    """Run one seed. Any exception is a violation, because the scheduler's own assertions are
    invariants, too."""
    with _no_garbage_looked_for():
        verdict = _run_seed(seed, traces)
        with unheard():
            gc.collect(_YOUNGEST)
    return verdict


def _run_seed(seed: int, traces: bool) -> Verdict:
    trial = Trial(seed, plan_faults=plan_faults, traces=traces)
    violation = None
    try:
        with no_clocks(), no_surprises(trial.timeline, trial.patience.left_out):
            trial.run()
    except Exception as error:
        violation = str(error) or repr(error)
        trial.record.note(f"VIOLATION {violation}")
    leave_loops()
    trial.record.close()
    return Verdict(seed, violation, len(trial.clients), trial.timeline.num_run, trial.record)


def run_seeds(
    first_seed: int,
    num_seeds: int,
    *,
    max_violations: int = 1,
    on_seed: Callable[[Campaign], None] = lambda campaign: None,
) -> Campaign:
    """Run seeds in order; stop at `max_violations`."""
    campaign = Campaign()
    for seed in range(first_seed, first_seed + num_seeds):
        campaign.add(run_seed(seed))
        on_seed(campaign)
        if len(campaign.violations) >= max_violations:
            break
    return campaign


def replay(seed: int) -> Verdict:
    """Run the seed once more, with a trace of the same events."""
    return run_seed(seed, traces=True)


@contextmanager
def unheard() -> Iterator[None]:
    """Ignore what tasks report when they are collected after the world's end. Collecting a task
    closes it where it stands."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda said: None
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            yield
    finally:
        sys.unraisablehook = hook


@contextmanager
def _no_garbage_looked_for() -> Iterator[None]:
    """Turn the garbage collector off while a world runs. Imported objects are never examined, and a
    world's objects only after it has ended. While they are still in the processor's caches, that
    takes a fifth of the time that it takes for thirty worlds at once."""
    was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _least(known: int | None, count: int) -> int:
    return count if known is None else min(known, count)
