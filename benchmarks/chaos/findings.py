"""Compares two runs byte for byte and says of every failed attempt which fault it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chaos.answers import Answer, Attempt, Failure, Output
from benchmarks.chaos.faults import Blow
from benchmarks.chaos.recovery import Recovery
from benchmarks.harness.processes import Kind

_AFTERWARDS_S = 1.0
"""A client may hear of a broken connection a little after the process is back."""
_NEVER_BACK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """An attempt that failed, and the fault that explains it; None: nothing does."""

    way: str
    failure: Failure
    fault: str | None
    at_s: float
    is_allowed: bool
    """Its ingress or its proxy was killed, and it was told so in clear words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The disturbed run beside the undisturbed one."""

    num_answers: int
    num_identical: int
    differing: tuple[int, ...]
    """Requests whose answer is another one, or that had none."""
    changed: tuple[int, ...]
    """Requests with a failed attempt that had begun with anything else than the right answer."""
    failed: tuple[FailedAttempt, ...]


def compare(
    undisturbed: Sequence[Answer], disturbed: Sequence[Answer], recoveries: Sequence[Recovery]
) -> Comparison:
    """Every answer of `undisturbed` is there."""
    expected = {answer.asked.number: answer.output for answer in undisturbed}
    differing, changed, failed = [], [], []
    for answer in disturbed:
        right = expected[answer.asked.number]
        assert right is not None, "the undisturbed run has every answer"
        if answer.output != right:
            differing.append(answer.asked.number)
        for attempt in answer.attempts:
            if attempt.failure is not None:
                failed.append(_explained(attempt, attempt.failure, recoveries))
                if not _is_beginning(attempt.output, right):
                    changed.append(answer.asked.number)
    return Comparison(
        num_answers=len(disturbed),
        num_identical=len(disturbed) - len(differing),
        differing=tuple(differing),
        changed=tuple(changed),
        failed=tuple(failed),
    )


def _is_beginning(part: Output, whole: Output) -> bool:
    same_ids = whole.token_ids[: len(part.token_ids)] == part.token_ids
    return same_ids and whole.text.startswith(part.text)


def _explained(attempt: Attempt, failure: Failure, recoveries: Sequence[Recovery]) -> FailedAttempt:
    assert attempt.ended_s is not None
    breaking = [r for r in recoveries if _breaks_connections(r) and _covers(r, attempt.ended_s)]
    allowed = [r for r in breaking if _may_be_told(r, failure)]
    fault = next((str(r.strike.fault) for r in reversed(allowed or breaking)), None)
    return FailedAttempt(
        way=attempt.asked.way,
        failure=failure,
        fault=fault,
        at_s=attempt.ended_s,
        is_allowed=bool(allowed),
    )


def _breaks_connections(recovery: Recovery) -> bool:
    fault = recovery.strike.fault
    return fault.blow is Blow.KILL and fault.kind in (Kind.INGRESS, Kind.PROXY)


def _covers(recovery: Recovery, at_s: float) -> bool:
    ready_s = _NEVER_BACK_S if recovery.ready_s is None else recovery.ready_s
    struck_s = recovery.strike.at_s
    return struck_s <= at_s <= struck_s + ready_s + _AFTERWARDS_S


def _may_be_told(recovery: Recovery, failure: Failure) -> bool:
    """A killed ingress leaves a proxy that can say so; a killed proxy leaves nobody."""
    is_proxy = recovery.strike.fault.kind is Kind.PROXY
    return failure.says_retry or (is_proxy and failure.is_broken_connection)
