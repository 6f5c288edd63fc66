"""Decides whether a target's sequences are split in two halves.

If they are split, one half is drafted while the other is verified.

A half costs more than half of a whole, because a pass has a fixed cost however few rows it has.
Unsplit, a round takes V(B) + D(B). Split, it takes twice the longer of V(B/2) and D(B/2). The times
of groups are kept apart for the two modes, because replicas that work at the same time may slow
each other down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from specdec_core.config import OverlapMode, SchedulerConfig
from specdec_core.messages import GroupLease, ReplicaInfo, Role
from specdec_core.speculation.pass_prices import PassPrices, guessed_prices, last_of_class

_GAIN = 0.02
"""Minimum relative gain of the other mode before it is used."""
_FIRST_GROUPS = 8
"""Target groups before the first trial of the other mode."""
_LOOK = 6
"""Length of a trial of a mode, in target groups. The first ones still run in the old mode."""
_LOOK_EVERY = 512
"""Target groups after which the other mode is tried again for about as many sequences."""
_FINE = 4
"""Classes of group sizes per octave."""
_LOOK_MOST = 1.25
"""Maximum predicted round time of the other mode for a trial, relative to the present mode."""
_LOOK_APART = 100
"""Minimum target groups between two trials. Results for other sizes say something about this size,
too."""
_RESTING = 4
"""Target groups without a drafted one after which the draft model counts as resting."""
_RECENT = 0.1
"""Weight of the last group in the running averages."""


_GUESSED = guessed_prices(fixed_rows=32.0)
"""Half of the time of a pass of 32 rows does not depend on its rows, until passes show more."""


@dataclass(eq=False, slots=True)
class _Way:
    """Cost models of one mode: of the groups that ran while sequences were split, or were not."""

    verify: PassPrices = field(default_factory=partial(PassPrices, expected=_GUESSED))
    draft: PassPrices = field(default_factory=partial(PassPrices, expected=_GUESSED))
    """Cost of one draft step."""


class Pipelining:
    """Decision on splitting, made once for all targets of a scheduler: their rounds are alike."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._mode = config.overlap
        self._max_group_size = config.max_group_size
        self._ways = {False: _Way(), True: _Way()}
        """Cost models by whether sequences were split."""
        self._rows = 1.0
        self._steps = 1.0
        """Recent averages: rows per verified sequence, and steps per drafted group."""
        self._num_plain = _RESTING
        """Target groups since the last drafted one."""
        self._num_groups = 0
        """Target groups so far."""
        self._is_split = False
        self._looked_at: dict[int, int] = {}
        """Half a target's sequences, as a size class -> the target group of the last trial."""
        self._look_until = 0
        self._decided: tuple[int, int] | None = None
        """(live sequences per target, target groups) at the last decision."""

    def welcome(self, info: ReplicaInfo) -> None:
        """Note a replica that registers."""
        if info.role is Role.TARGET and info.max_num_seqs:
            self._max_group_size = min(self._max_group_size, info.max_num_seqs)

    def max_rows(self, num_live: int, num_targets: int, num_drafts: int) -> int | None:
        """Return the maximum rows of a group while sequences are split, or None while they are not.

        `num_live` sequences of each target are drafted for.
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
        """Note the seconds of a group. `is_split` is the mode in which it was formed."""
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
        """Return whether it is time to try the other mode."""
        if self._num_groups < _FIRST_GROUPS or not self._could_pay(num_live):
            return False
        size = last_of_class(self._half(num_live), _FINE)
        before = self._looked_at.get(size)
        is_due = before is None or self._num_groups - before >= _LOOK_EVERY
        is_due &= not self._looked_at or self._num_groups >= self._look_until + _LOOK_APART
        if is_due:
            self._looked_at[size] = self._num_groups
        return is_due

    def _could_pay(self, num_live: int) -> bool:
        """Return whether the other mode may be faster.

        The answer uses the other mode's known times, or else assumes that halves cost half.
        """
        other_s = self._round_s(num_live, not self._is_split)
        if other_s < float("inf"):
            return other_s < _LOOK_MOST * self._round_s(num_live, self._is_split)
        verify_s, draft_s = self._parts_s(num_live, self._is_split)
        return min(verify_s, draft_s) > _GAIN * (verify_s + draft_s)

    def _round_s(self, num_live: int, is_split: bool) -> float:
        """Return the seconds of one round of all sequences, divided by their number."""
        if not is_split:
            return sum(self._parts_s(num_live, False)) / min(num_live, self._max_group_size)
        return 2.0 * max(self._parts_s(num_live, True)) / num_live

    def _parts_s(self, num_live: int, is_split: bool) -> tuple[float, float]:
        """Return the seconds of verifying and of drafting a group."""
        size = self._half(num_live) if is_split else min(num_live, self._max_group_size)
        way = self._ways[is_split]
        verify_s = _seconds(way.verify, size, round(size * self._rows))
        return verify_s, self._steps * _seconds(way.draft, size, size)


def _seconds(cost: PassPrices, size: int, rows: int) -> float:
    """Return the expected seconds of a pass, infinite while no pass is known."""
    return cost.price(size, rows).seconds if cost.is_known else float("inf")
