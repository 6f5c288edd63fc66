"""Rows that go without a proposal: as many as leave their draft a full group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specdec_core.scheduler.batch_builder import DraftFallback

GROUP = 4


class World:
    """A target with some ready rows of a group, others that wait for drafts with such queues."""

    def __init__(self, num_ready: int, queues: dict[str, int], waiting: str) -> None:
        """`waiting`: the draft that each sequence waits for, in order."""
        self.without: list[str] = []
        self.is_draft_short = True
        drafts = [
            SimpleNamespace(
                replica_id=name,
                ready_queue=SimpleNamespace(decoding=range(size), max_rows=GROUP),
            )
            for name, size in queues.items()
        ]
        sequences = {
            number: SimpleNamespace(
                sequence_id=number,
                name=f"{draft}{number}",
                draft=SimpleNamespace(replica_id=draft),
            )
            for number, draft in enumerate(waiting)
        }
        ready_queue = SimpleNamespace(
            max_rows=GROUP,
            awaiting_draft=sequences,
            decoding=range(num_ready),
            prefill_rows=lambda num_in_flight: [],
        )
        self.changed: dict[int, Any] = {}
        self.target: Any = SimpleNamespace(ready_queue=ready_queue, changed=self.changed)
        self.replicas: Any = SimpleNamespace(of_role=lambda role: drafts)

    def skip_drafting(self, sequence: Any) -> None:
        self.without.append(sequence.name)

    def fill(self) -> bool:
        proposer: Any = self
        return DraftFallback(self.replicas, proposer).fill(self.target, 0)


@pytest.mark.parametrize(
    ("num_ready", "queues", "waiting", "expected"),
    [
        (2, {"a": GROUP + 2}, "aaaa", ["a0", "a1"]),
        (2, {"a": GROUP + 1}, "aaaa", []),
        (2, {"a": GROUP}, "aaaa", []),
        (2, {"a": GROUP + 1, "b": GROUP + 1}, "aabb", ["a0", "b2"]),
        (3, {"a": GROUP + 1}, "a", ["a0"]),
        (1, {"a": GROUP + 9}, "aa", []),
        (GROUP, {"a": GROUP + 9}, "aa", []),
    ],
    ids=[
        "two to spare",
        "one to spare",
        "none",
        "one of each",
        "one is missing, one waits",
        "too few wait",
        "a full group",
    ],
)
def test_a_group_is_filled_whole_and_each_draft_keeps_one(
    num_ready: int, queues: dict[str, int], waiting: str, expected: list[str]
) -> None:
    world = World(num_ready, queues, waiting)
    assert world.fill() == bool(expected)
    assert world.without == expected
    assert [sequence.name for sequence in world.changed.values()] == expected


def test_while_drafts_have_time_nobody_goes_without() -> None:
    world = World(2, {"a": GROUP + 2}, "aaaa")
    world.is_draft_short = False
    assert not world.fill()
    assert not world.without
