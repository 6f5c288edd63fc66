"""What drafting costs a round where a draft serves several targets: their groups queue for it.

A target's place goes unused while its group is drafted and no other group of it is there to be
verified. That, and not the draft's time itself, is what a drafted token costs. A draft has no more
time than there is: where all ask for more, a share of the rounds has to do without.
"""

from __future__ import annotations

from typing import NamedTuple


class DraftLoad(NamedTuple):
    """Who shares a target, and a draft."""

    num_live: int
    """Sequences of a target."""
    max_group_size: int
    targets_per_draft: float

    @property
    def group_size(self) -> int:
        return max(min(self.num_live, self.max_group_size), 1)

    @property
    def num_groups(self) -> float:
        """Of a target."""
        return max(self.num_live / self.max_group_size, 1.0)

    def exposed_s(self, drafting_s: float, pass_s: float) -> float:
        """Seconds that drafting adds to a round of a target whose passes take `pass_s`.

        A draft that has one target may have its device, too: they take turns, nothing is hidden.
        """
        if self.targets_per_draft <= 1.0:
            return drafting_s
        num_others = self.targets_per_draft * self.num_groups - 1.0
        excess_s = num_others * drafting_s - pass_s  # what does not fit beside its own pass
        busy = min(max(excess_s, 0.0) / (pass_s + drafting_s), 1.0)
        queued_s = busy * drafting_s / 2.0  # what runs is half over, on average
        return max(drafting_s + queued_s - (self.num_groups - 1.0) * pass_s, 0.0)

    def drafted_share(self, drafting_s: float, round_s: float, plain_s: float) -> float:
        """Of the rounds, that the draft has time for; a drafted one takes the target `round_s`, one
        without `plain_s`. Groups that are not full share a draft's pass."""
        num_sharing = min(self.max_group_size / self.group_size, self.targets_per_draft)
        needed_s = self.targets_per_draft * drafting_s / max(num_sharing, 1.0)
        return 1.0 if needed_s <= round_s else plain_s / (needed_s - round_s + plain_s)


class DraftPlan(NamedTuple):
    """A number of draft steps, and what it promises."""

    steps: int
    tokens_per_second: float
    """Of a target's group."""
    drafted_share: float
    """Of the rounds, that the draft has time for."""
