"""How many replicas each signal asks for: the formulas of docs/autoscaling.md. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from deployments.autoscaling.signals import CellSignals
from deployments.config.aims import Bounds, Thresholds

_NO_LIMITS = Bounds(0, 2**31)


class DesiredReplicas(NamedTuple):
    """A signal, what of it is for one replica, and the replicas that follow."""

    signal: str
    value: float
    threshold: float
    replicas: float
    limits: Bounds = _NO_LIMITS
    """Beyond which more or fewer are of no use, whatever the signal says."""

    def __str__(self) -> str:
        return f"{self.signal} {self.value:.4g} (threshold {self.threshold:.4g})"


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Drafting did not pay: no draft replica until then, or until groups are much smaller."""

    until: float
    rows_per_target: float

    def is_over(self, signals: CellSignals, now: float) -> bool:
        return now >= self.until or rows_per_target(signals) < self.rows_per_target / 2


NOT_PAYING = "drafted_share"
"""Signal of the wish that a rest follows."""


def target_wish(signals: CellSignals, aims: Thresholds) -> DesiredReplicas:
    """The largest of three: what the targets do, the KV that is asked for, the places."""
    kv_tokens = signals.kv_tokens + signals.waiting_tokens
    wishes = [
        _per_replica("target_load", signals.target_load, aims.target_load),
        _per_replica("live_sequences", signals.num_live, aims.window),
    ]
    if signals.kv_tokens_per_target:
        wishes.append(_per_replica("kv_tokens", kv_tokens, aims.kv * signals.kv_tokens_per_target))
    return max(wishes, key=lambda wish: wish.replicas)


def draft_wish(signals: CellSignals, aims: Thresholds, rest: Cooldown | None) -> DesiredReplicas:
    """None while drafting rests, does not pay, or nobody wants a draft; else one at least, and by
    what drafts do and what waits for them no more than one for each half of a group."""
    if rest is not None:
        return DesiredReplicas("resting", 1.0, 1.0, 0.0)
    if not signals.num_wanting:
        return DesiredReplicas("num_wanting", 0.0, 1.0, 0.0)
    if not signals.num_drafts:
        return DesiredReplicas("num_starved", signals.num_starved, 1.0, 1.0)
    if signals.num_rounds and signals.drafted_share < aims.least_drafted:
        return DesiredReplicas(NOT_PAYING, signals.drafted_share, aims.least_drafted, 0.0)
    work = signals.draft_busy + signals.num_starved / signals.num_wanting
    needed = max(
        _per_replica("draft_busy+starved", work, aims.draft_busy),
        _per_replica("draft_kv", signals.draft_kv, aims.kv),
        key=lambda wish: wish.replicas,
    )
    useful = _per_replica("num_wanting", signals.num_wanting, aims.max_group_size / 2)
    chosen = min(needed, useful, key=lambda wish: wish.replicas)
    return chosen._replace(limits=Bounds(1, ceil(useful.replicas)))


def ingress_wish(num_requests: float, aims: Thresholds) -> DesiredReplicas:
    return _per_replica("requests", num_requests, aims.requests_per_ingress)


def rows_per_target(signals: CellSignals) -> float:
    return signals.num_live / max(signals.num_targets, 1.0)


def _per_replica(signal: str, value: float, threshold: float) -> DesiredReplicas:
    return DesiredReplicas(signal, value, threshold, value / threshold)
