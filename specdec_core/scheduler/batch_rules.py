"""Rules that the batches of every grouping policy keep: when a batch is due, and what fills it.

The default policy adds nothing but the order: the oldest rows come first.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from specdec_core.config import SchedulerConfig
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.replicas import Device
from specdec_core.scheduler.rows import ScheduledRow, age_of

Choice = list[ScheduledRow] | float
"""The rows of a batch in any order, or the time until which it is held."""
NEXT_EVENT = inf
"""Time until which a batch is held if only an event, such as a result, can make it due."""


class ReplicaLoad(NamedTuple):
    """Work of a replica when its next batch is chosen."""

    device: Device
    has_leases: bool
    """Whether the replica has a batch that it has not answered."""
    num_prefill_tokens: int
    """Prefill tokens of its open leases. They count for SchedulerConfig.max_prefill_tokens."""
    max_split_rows: int | None
    """Maximum rows of a batch while sequences are split in halves (Pipelining); None while they are
    not."""


def hold_until(
    ready: ReadyQueue, replica: ReplicaLoad, now: float, max_wait_s: float
) -> float | None:
    """Return the time until which the next batch waits for more rows, or None if it is due.

    It is due if it is full, if it has waited `max_wait_s`, or if no row is about to join it. Behind
    a running batch, or other passes of a shared device, a partial one would not run sooner. If
    sequences are split, the rows in flight are the other half.
    """
    prefill = ready.prefill_rows(replica.num_prefill_tokens)
    num_clients = len(ready.decoding) + len(prefill)
    is_half = num_clients > 0 and replica.max_split_rows is not None
    if is_half or num_clients >= ready.max_rows or not ready.may_gain_rows:
        return None
    return _hold_partial(ready, replica, prefill, now, max_wait_s)


def _hold_partial(
    ready: ReadyQueue,
    replica: ReplicaLoad,
    prefill: list[ScheduledRow],
    now: float,
    max_wait_s: float,
) -> float | None:
    """Return the time until which a partial batch waits for the rows that are about to join it.
    None if it is due."""
    # Background rows join a client's, or run when there are none.
    if not (prefill or len(ready.decoding)) or replica.has_leases:
        return NEXT_EVENT
    ready_times = [row.sequence.ready_since for row in prefill]
    if len(ready.decoding):
        ready_times.append(ready.decoding.ready_since)
    ready_since = min(ready_times)
    until = max(ready_since + max_wait_s, replica.device.wait_deadline(ready_since))
    return until if until > now else None


def fill_batch(
    decoding: list[ScheduledRow], ready: ReadyQueue, replica: ReplicaLoad
) -> list[ScheduledRow]:
    """Return a batch of the oldest of the chosen `decoding` rows and of those that may catch up.

    Background rows take the slots that clients leave free. The batch is empty only if all ready
    rows have to wait.
    """
    num_in_flight, count = replica.num_prefill_tokens, ready.max_rows
    prefill = ready.prefill_rows(num_in_flight)
    batch = decoding + prefill
    if ready.background and len(batch) < count:
        batch += ready.background_rows(num_in_flight, prefill)
    if replica.max_split_rows is not None:
        count = min(count, replica.max_split_rows)
    if len(batch) <= count:
        return batch
    return sorted(batch, key=lambda row: (row.sequence.is_background, age_of(row)))[:count]


class OldestFirst:
    """The grouping policy that batches the rows that wait longest, whatever their lengths."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._max_wait_s = config.max_group_wait_s

    def choose(self, ready: ReadyQueue, replica: ReplicaLoad, now: float) -> Choice:
        held_until = hold_until(ready, replica, now, self._max_wait_s)
        if held_until is not None:
            return held_until
        return fill_batch(ready.decoding.oldest(ready.max_rows), ready, replica)
