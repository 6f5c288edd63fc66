"""Grouping policies: which ready rows of a replica form its next batch, or until when they wait.

A policy is found by its name, SchedulerConfig.grouping or the service's setting `grouping`. Another
one is a class in a file of its own and a line in `GROUPING_POLICIES`. It takes the SchedulerConfig
and has the method of GroupingPolicy, without deriving from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from specdec_core.config import SchedulerConfig
from specdec_core.scheduler.batch_rules import Choice, OldestFirst, ReplicaLoad
from specdec_core.scheduler.equal_length import EqualLength
from specdec_core.scheduler.ready_queue import ReadyQueue


class GroupingPolicy(Protocol):
    """Chooses the batches of all replicas of a scheduler.

    The scheduler asks whenever a replica could take a batch and has a ready row. A choice decides
    when tokens come, never which. `hold_until` tells whether a partial batch waits for more rows.
    `fill_batch` keeps the limits of rows and prefill tokens. That no row waits for ever is up to
    the policy.
    """

    def choose(self, ready: ReadyQueue, replica: ReplicaLoad, now: float) -> Choice:
        """Return the rows of the batch, or the time at which to be asked again.

        The time is on the clock of `now`, in seconds. An event, such as a result, leads to an
        earlier question. NEXT_EVENT waits for an event alone, and so does an empty batch.
        """


GROUPING_POLICIES: dict[str, Callable[[SchedulerConfig], GroupingPolicy]] = {
    "oldest_first": OldestFirst,
    "equal_length": EqualLength,
}
"""Policies by name."""


def check_grouping(name: str) -> str:
    """Return the name of a policy. Raise ValueError if there is none of this name."""
    if name not in GROUPING_POLICIES:
        names = ", ".join(GROUPING_POLICIES)
        raise ValueError(f"grouping must be one of {names}, got {name!r}")
    return name


def make_grouping_policy(config: SchedulerConfig) -> GroupingPolicy:
    """Return the policy that the configuration names. Raise ValueError if there is none."""
    return GROUPING_POLICIES[check_grouping(config.grouping)](config)
