"""Whether a target's sequences are split in two, so that one half is drafted while the other is
verified.

A half costs more than half of a whole: a pass takes its time however few rows it has. Unsplit a
round takes V(B) + D(B), split twice the longer of V(B/2) and D(B/2). What groups took is kept apart
for either way, because replicas that work at the same time may slow each other down.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec_core.config import OverlapMode, PoolConfig
from specdec_core.messages import GroupLease, ReplicaInfo, Role
from specdec_core.speculation.step_costs import CostModel, alike

_GAIN = 0.02
"""By so much the other way must be better, relatively, before it is taken."""
_FIRST_GROUPS = 8
"""Of a target, before anything is tried."""
_LOOK = 6
"""Target groups for which the other way is tried: the first ones still belong to the way before."""
_LOOK_EVERY = 512
"""Groups after which it is tried once more for as many sequences."""
_LOOK_MOST = 1.25
"""Seconds of a round that are expected of it, over those of the present way."""
_LOOK_APART = 100
"""Least groups between two trials: what is known of other sizes says something of this one, too."""
_RESTING = 4
"""Target groups without a drafted one after which the draft model counts as resting."""
_RECENT = 0.1
"""Weight of the last group in what is usual."""


@dataclass(eq=False, slots=True)
class _Way:
    """What groups took while sequences were split, or were not."""

    verify: CostModel = field(default_factory=CostModel)
    draft: CostModel = field(default_factory=CostModel)
    """Of one draft step."""


class Pipelining:
    """One decision for all targets of a pool: their rounds are alike."""

    def __init__(self, config: PoolConfig) -> None:
        self._mode = config.overlap
        self._max_group_size = config.max_group_size
        self._ways = {False: _Way(), True: _Way()}
        """By whether sequences were split."""
        self._rows = 1.0
        self._steps = 1.0
        """Rows of a verified sequence and steps of a drafted group, as usual of late."""
        self._num_plain = _RESTING
        """Target groups since the last drafted one."""
        self._num_groups = 0
        """Of targets."""
        self._is_split = False
        self._looked_at: dict[int, int] = {}
        """Half a target's sequences, about -> the group at which the other way was tried."""
        self._look_until = 0
        self._decided: tuple[int, int] | None = None
        """(sequences, groups) that the decision was made for."""

    def welcome(self, info: ReplicaInfo) -> None:
        """A replica has registered."""
        if info.role is Role.TARGET and info.max_num_seqs:
            self._max_group_size = min(self._max_group_size, info.max_num_seqs)

    def max_rows(self, num_live: int, num_targets: int, num_drafts: int) -> int | None:
        """Most rows of a group while sequences are split; None while they are not.

        `num_live` of each target are drafted for.
        """
        if self._mode is OverlapMode.NEVER or num_live < 2 or self._num_plain >= _RESTING:
            return None
        if self._mode is OverlapMode.ALWAYS:
            return self._half(num_live)
        # A draft that serves several targets works for one of them while another verifies.
        if num_targets > num_drafts or num_live >= 2 * self._max_group_size:
            return None
        if self._decided != (num_live, self._num_groups):
            self._decided = num_live, self._num_groups
            self._is_split = self._decide(num_live)
        return self._half(num_live) if self._is_split else None

    def observe(self, lease: GroupLease, seconds: float, is_split: bool) -> None:
        """What a group took that was formed while sequences were split, or were not."""
        size, way = len(lease.rows), self._ways[is_split]
        if lease.role is Role.DRAFT:
            steps = max(row.num_choices for row in lease.rows)
            if steps > 0:
                self._num_plain = 0
                self._steps += _RECENT * (steps - self._steps)
                way.draft.observe(size, size, seconds / steps)
            return
        self._num_groups += 1
        self._num_plain += 1
        if all(row.proposal for row in lease.rows):
            rows = sum(len(row.new_ids) + len(row.proposal) for row in lease.rows)
            self._rows += _RECENT * (rows / size - self._rows)
            way.verify.observe(size, rows, seconds)

    def _half(self, num_live: int) -> int:
        return min(-(-num_live // 2), self._max_group_size)

    def _decide(self, num_live: int) -> bool:
        if self._num_groups < self._look_until:
            return self._is_split
        if self._is_to_be_looked_at(num_live):
            self._look_until = self._num_groups + _LOOK
            return not self._is_split
        whole, split = self._round_s(num_live, False), self._round_s(num_live, True)
        if self._is_split:
            return split < (1.0 + _GAIN) * whole
        return split < (1.0 - _GAIN) * whole

    def _is_to_be_looked_at(self, num_live: int) -> bool:
        """Whether it is time to try the other way."""
        if self._num_groups < _FIRST_GROUPS or not self._could_pay(num_live):
            return False
        size = alike(self._half(num_live))
        before = self._looked_at.get(size)
        is_due = before is None or self._num_groups - before >= _LOOK_EVERY
        is_due &= not self._looked_at or self._num_groups >= self._look_until + _LOOK_APART
        if is_due:
            self._looked_at[size] = self._num_groups
        return is_due

    def _could_pay(self, num_live: int) -> bool:
        """Whether the other way may be the better one: by what is known of it, or else if halves
        cost half."""
        other_s = self._round_s(num_live, not self._is_split)
        if other_s < float("inf"):
            return other_s < _LOOK_MOST * self._round_s(num_live, self._is_split)
        verify_s, draft_s = self._parts_s(num_live, self._is_split)
        return min(verify_s, draft_s) > _GAIN * (verify_s + draft_s)

    def _round_s(self, num_live: int, is_split: bool) -> float:
        """Seconds of one round of all, per sequence."""
        if not is_split:
            return sum(self._parts_s(num_live, False)) / min(num_live, self._max_group_size)
        return 2.0 * max(self._parts_s(num_live, True)) / num_live

    def _parts_s(self, num_live: int, is_split: bool) -> tuple[float, float]:
        """Of verifying and of drafting a group."""
        size = self._half(num_live) if is_split else min(num_live, self._max_group_size)
        way = self._ways[is_split]
        verify_s = _seconds(way.verify, size, round(size * self._rows))
        return verify_s, self._steps * _seconds(way.draft, size, size)


def _seconds(cost: CostModel, size: int, rows: int) -> float:
    """What nobody has seen takes for ever."""
    return cost.at(size, rows) if cost.is_known else float("inf")
