"""A machine that is slow for a while: what passes cost beside each other is not forgotten.

While all passes take five times as long, the controller sees only those of the size that it runs.
Whoever keeps their costs apart finds every other size cheap, or dear, when the time has passed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from specdec_core.messages import LeaseRow, Role, RowResult
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.k_policy import KPolicy
from specdec_core.speculation.policies import FixedPolicy
from tests.scheduler.test_goodput import Run, World

SLOWNESS = 5.0
NUM_SETTLING = 100
"""Rounds behind a slow time, for what is to be learnt."""


@dataclass
class Machine(Run):
    """One of two speeds."""

    is_slow: bool = False

    def _spend(
        self, role: Role, rows: list[LeaseRow], results: list[RowResult], seconds: float
    ) -> None:
        super()._spend(role, rows, results, seconds * (SLOWNESS if self.is_slow else 1.0))


def demo(batch: int, acceptance: float) -> World:
    """Costs as those of the demo model on two cores: linears go by tiles of 16 rows, which nobody
    tells the controller."""
    return _Tiled((acceptance,) * batch, 9.7, 0.1, sequence_ms=0.36)


class _Tiled(World):
    def verify_s(self, num_sequences: int, num_rows: int) -> float:
        return super().verify_s(num_sequences, num_rows) + 0.0018 * -(-num_rows // 16)


def tokens_per_second(world: World, policy: KPolicy, slow: range) -> float:
    """Of 200 rounds, some time behind those that are slow."""
    run, last = Machine(world, policy), slow.stop + NUM_SETTLING
    histories = run.new_histories()
    for number in range(last + 200):
        if number == last:
            run.seconds, run.num_tokens = 0.0, 0
        run.is_slow = number in slow
        run._round(histories)
    return run.num_tokens / run.seconds


@pytest.mark.covering(1)
@pytest.mark.parametrize("slow", [range(12), range(40), range(100, 160)], ids=str)
@pytest.mark.parametrize("acceptance", [0.5, 0.1, 0.9])
@pytest.mark.parametrize("batch", [1, 4, 8, pytest.param(32, marks=pytest.mark.nightly)])
def test_a_slow_time_is_forgotten(batch: int, acceptance: float, slow: range) -> None:
    world = demo(batch, acceptance)
    plain, *fixed = (tokens_per_second(world, FixedPolicy(k), slow) for k in (0, 1, 2, 4, 8))
    reached = tokens_per_second(world, GoodputPolicy(max_group_size=64), slow)
    assert reached >= 0.97 * plain
    assert reached >= 0.95 * max(fixed)
