"""What the autoscaler aims at: loads per replica, and how long a wish must last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most replicas of a deployment."""

    least: int
    most: int

    def clamp(self, number: int) -> int:
        return max(self.least, min(self.most, number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The settings that ServiceConfig has under the same names with `scale_` before them."""

    window: int
    """Sequences that a target admits."""
    max_group_size: int
    target_load: float = 0.7
    """Share of the time that a target is busy with full groups."""
    kv: float = 0.85
    """Share of a replica's KV that is reserved."""
    draft_busy: float = 0.7
    requests_per_ingress: float = 200.0
    least_drafted: float = 0.05
    """Below this share of rounds with a proposal by a draft replica, drafting does not pay."""
    up_delay_s: float = 5.0
    down_delay_s: float = 300.0
    zero_delay_s: float = 600.0
    """Before the last draft replica goes."""
    retry_s: float = 1800.0
    """Drafting that did not pay is tried again."""
    slack: float = 0.8
    """A deployment shrinks where the fewer ones would have this share of what they are to have."""
