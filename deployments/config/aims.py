"""The thresholds of the autoscaler: loads per replica, and delays before a change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Minimum and maximum replicas of a deployment."""

    least: int
    most: int

    def clamp(self, number: int) -> int:
        return max(self.least, min(self.most, number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Settings that ServiceConfig has under the same names with the prefix `scale_`."""

    window: int
    """Maximum sequences that a target admits."""
    max_group_size: int
    target_load: float = 0.7
    """Share of the time that a target should be busy with full groups."""
    kv: float = 0.85
    """Share of a replica's KV cache that should be reserved."""
    draft_busy: float = 0.7
    requests_per_ingress: float = 200.0
    least_drafted: float = 0.05
    """Minimum share of rounds with a draft replica's proposal. Below it, drafting does not pay."""
    up_delay_s: float = 5.0
    down_delay_s: float = 300.0
    zero_delay_s: float = 600.0
    """Delay before the last draft replica is removed."""
    retry_s: float = 1800.0
    """Time after which drafting that did not pay is tried again."""
    slack: float = 0.8
    """A deployment shrinks if fewer replicas would have at most this share of their thresholds."""
