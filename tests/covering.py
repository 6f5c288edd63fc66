"""Few cases of a test's parameters that still bring every few of their values together.

Most defects need two values to meet, not five (Kuhn, Wallace, Gallo, "Software fault interactions
and implications for software testing", IEEE TSE 30(6), 2004).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any


def covering(cases: Sequence[Mapping[str, Any]], strength: int) -> list[int]:
    """Indices of cases in which all values of any `strength` parameters meet that meet in any case.

    Greedy: next the case with the most that has not met yet, the first of equals. With fewer
    parameters than `strength` all cases are needed.
    """
    meetings = [_meetings(case, strength) for case in cases]
    missing = set().union(*meetings)
    chosen: list[int] = []
    while missing:
        best = max(range(len(cases)), key=lambda index: len(meetings[index] & missing))
        chosen.append(best)
        missing -= meetings[best]
    return sorted(chosen)


def _meetings(case: Mapping[str, Any], strength: int) -> set[Hashable]:
    values = [(name, _key(value)) for name, value in sorted(case.items())]
    return set(combinations(values, min(strength, len(values))))


def _key(value: Any) -> Hashable:
    """Parameters live as long as their test: those that have no hash are told apart by place."""
    return value if isinstance(value, Hashable) else id(value)
