"""However many targets ask for the cell's signals, the pool is looked at once a second."""

from __future__ import annotations

from dataclasses import replace

from deployments.autoscaling.signal_sampler import SignalSampler
from deployments.autoscaling.signals import CellSignals, SignalMeter
from specdec_core.config import SpecMethod
from specdec_core.scheduler import SchedulerCounters
from tests.scheduler.cell import Cell, config

NUM_TARGETS = 16
SECONDS = 20


class Pool:
    """Counts who looks. Ten rounds a second."""

    def __init__(self) -> None:
        self.num_looks = 0
        self.now = 0.0
        self._counters = Cell(config(SpecMethod.DRAFT_MODEL)).pool.counters()

    def counters(self) -> SchedulerCounters:
        self.num_looks += 1
        return replace(self._counters, num_sequence_rounds=round(10 * self.now))


def asked(num_targets: int) -> tuple[int, list[CellSignals | None]]:
    """Looks, and what each target was told in turn: every one asks once a second."""
    pool = Pool()
    sampler = SignalSampler(pool.counters, SignalMeter(window_s=5.0))
    told = []
    for turn in range(SECONDS * num_targets):
        pool.now = turn / num_targets
        told.append(sampler.signals(pool.now))
    return pool.num_looks, told


def test_one_look_a_second_serves_all_who_ask() -> None:
    num_looks, told = asked(NUM_TARGETS)
    assert SECONDS - 1 <= num_looks <= SECONDS + 2
    assert told[-1] is not None
    assert told[-1].num_rounds >= 50  # of the whole window, as for one that asks alone


def test_one_that_asks_alone_is_told_news_every_time() -> None:
    num_looks, _ = asked(1)
    assert num_looks == SECONDS


def test_shares_are_the_same_for_many_as_for_one() -> None:
    (_, many), (_, one) = asked(NUM_TARGETS), asked(1)
    assert many[-1] is not None
    assert one[-1] is not None
    assert abs(many[-1].num_rounds - one[-1].num_rounds) <= 10
