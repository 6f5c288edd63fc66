"""When sequences are split: decided by what groups took, whole and split."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specdec_core.config import SchedulerConfig
from specdec_core.messages import Role
from specdec_core.scheduler.pipelining import Pipelining
from tests.scheduler.test_overlap import lease

LIVE = 16
FIRST_TRIAL = set(range(8, 14))
LATER_TRIAL = set(range(520, 526))

Seconds = Callable[[int], tuple[float, float]]
"""Of verifying and of drafting a group of so many rows, in milliseconds."""


def split_groups(took: Seconds, num_groups: int) -> set[int]:
    """Numbers of a target's groups that are formed while sequences are split."""
    overlap = Pipelining(SchedulerConfig(max_group_size=LIVE))
    found = set()
    for number in range(num_groups):
        half = overlap.max_rows(LIVE, 1, 1)
        size = LIVE if half is None else half
        if half is not None:
            assert half == LIVE // 2
            found.add(number)
        verify_ms, draft_ms = took(size)
        overlap.observe(lease(Role.DRAFT, size), draft_ms / 1000, half is not None)
        overlap.observe(lease(Role.TARGET, size), verify_ms / 1000, half is not None)
    return found


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        (lambda size: (size, size), set(range(8, 600))),
        (lambda size: (10.1 if size < LIVE else 10.0, 10.0), FIRST_TRIAL | set(range(520, 600))),
        (lambda size: (11.0 if size < LIVE else 10.0, 10.0), FIRST_TRIAL | LATER_TRIAL),
        (lambda size: (10.0, 3.0), FIRST_TRIAL),
        (lambda size: (10.0, 0.1), set()),
    ],
    ids=[
        "halves cost half",
        "as good, once it is known how many steps are usual: what is tried stays",
        "a tenth worse: tried again much later",
        "much worse: not tried again",
        "nothing to hide",
    ],
)
def test_splitting_is_tried_and_kept_where_it_pays(took: Seconds, expected: set[int]) -> None:
    assert split_groups(took, 600) == expected


def test_what_became_worse_is_left() -> None:
    """Halves that cost half, until the machine's replicas slow each other down."""
    calls = iter(range(10_000))

    def took(size: int) -> tuple[float, float]:
        is_slow = next(calls) >= 100 and size < LIVE
        return (3.0 * size, 3.0 * size) if is_slow else (size, size)

    found = split_groups(took, 400)
    assert set(range(8, 100)) <= found
    assert not found & set(range(300, 400))
