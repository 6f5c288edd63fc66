"""Cost of drafting for a round, if the groups of several targets queue for one draft.

A target's place goes unused while its group is drafted and no other group of the target can be
verified. This unused time is the cost of a drafted token, not the draft's time itself. A draft's
time is limited. If all rounds together ask for more, a share of the rounds has to do without
drafting.
"""

from __future__ import annotations

from typing import NamedTuple


class DraftLoad(NamedTuple):
    """How many sequences share a target, and how many targets share a draft."""

    num_live: int
    """Number of sequences of a target."""
    max_group_size: int
    targets_per_draft: float

    @property
    def group_size(self) -> int:
        return max(min(self.num_live, self.max_group_size), 1)

    @property
    def num_groups(self) -> float:
        """Number of groups of a target."""
        return max(self.num_live / self.max_group_size, 1.0)

    def exposed_s(self, drafting_s: float, pass_s: float) -> float:
        """Return the seconds that drafting adds to a round of a target whose passes take `pass_s`.

        A draft that has one target may also share its device. The two then take turns, and nothing
        is hidden.
        """
        if self.targets_per_draft <= 1.0:
            return drafting_s
        num_others = self.targets_per_draft * self.num_groups - 1.0
        excess_s = num_others * drafting_s - pass_s  # what does not fit next to its own pass
        busy = min(max(excess_s, 0.0) / (pass_s + drafting_s), 1.0)
        queued_s = busy * drafting_s / 2.0  # the running one is half done, on average
        return max(drafting_s + queued_s - (self.num_groups - 1.0) * pass_s, 0.0)

    def drafted_share(self, drafting_s: float, round_s: float, plain_s: float) -> float:
        """Return the share of the rounds that the draft has time for.

        A round with drafting takes the target `round_s`, one without takes `plain_s`. Groups that
        are not full share a draft's pass.
        """
        num_sharing = min(self.max_group_size / self.group_size, self.targets_per_draft)
        needed_s = self.targets_per_draft * drafting_s / max(num_sharing, 1.0)
        return 1.0 if needed_s <= round_s else plain_s / (needed_s - round_s + plain_s)


class DraftPlan(NamedTuple):
    """A number of draft steps, and its expected result."""

    steps: int
    tokens_per_second: float
    """Expected tokens per second of a target's group."""
    drafted_share: float
    """Share of the rounds that the draft has time for."""
