"""How many replicas each signal asks for: the formulas of docs/autoscaling.md. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from deployments.autoscaling.signals import CellSignals
from deployments.config.scaling import Bounds, Thresholds

_NO_LIMITS = Bounds(0, 2**31)


class DesiredReplicas(NamedTuple):
    """A signal, its threshold per replica, and the replicas that follow from both."""

    signal: str
    value: float
    threshold: float
    replicas: float
    limits: Bounds = _NO_LIMITS
    """Bounds outside which replicas are of no use, whatever the signal says."""

    def __str__(self) -> str:
        return f"{self.signal} {self.value:.4g} (threshold {self.threshold:.4g})"


@dataclass(frozen=True, slots=True)
class Cooldown:
    """No draft replica until `until`, or until groups are much smaller, because drafting did not
    pay."""

    until: float
    rows_per_target: float

    def is_over(self, signals: CellSignals, now: float) -> bool:
        return now >= self.until or rows_per_target(signals) < self.rows_per_target / 2


NOT_PAYING = "drafted_share"
"""Signal of the desired number that a cooldown follows."""


def target_wish(signals: CellSignals, aims: Thresholds) -> DesiredReplicas:
    """Return the maximum of three desired numbers: by target load, KV tokens and live sequences."""
    kv_tokens = signals.kv_tokens + signals.waiting_tokens
    wishes = [
        _per_replica("target_load", signals.target_load, aims.target_load),
        _per_replica("live_sequences", signals.num_live, aims.window),
    ]
    if signals.kv_tokens_per_target:
        wishes.append(_per_replica("kv_tokens", kv_tokens, aims.kv * signals.kv_tokens_per_target))
    return max(wishes, key=lambda wish: wish.replicas)


def draft_wish(signals: CellSignals, aims: Thresholds, rest: Cooldown | None) -> DesiredReplicas:
    """Return the desired draft replicas.

    They are 0 during a cooldown, if drafting does not pay, or if no sequence wants a draft.
    Otherwise there is at least one. Their load and the sequences that wait for them set the number,
    up to one replica for each half of a group.
    """
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
