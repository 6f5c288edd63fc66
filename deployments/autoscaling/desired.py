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


def desired_targets(signals: CellSignals, thresholds: Thresholds) -> DesiredReplicas:
    """Return the maximum of three desired numbers: by target load, KV tokens and live sequences."""
    kv_tokens = signals.kv_tokens + signals.waiting_tokens
    candidates = [
        _per_replica("target_load", signals.target_load, thresholds.target_load),
        _per_replica("live_sequences", signals.num_live, thresholds.window),
    ]
    if signals.kv_tokens_per_target:
        candidates.append(
            _per_replica("kv_tokens", kv_tokens, thresholds.kv * signals.kv_tokens_per_target)
        )
    return max(candidates, key=lambda candidate: candidate.replicas)


def desired_drafts(
    signals: CellSignals, thresholds: Thresholds, cooldown: Cooldown | None
) -> DesiredReplicas:
    """Return the desired draft replicas.

    They are 0 during a cooldown, if drafting does not pay, or if no sequence wants a draft.
    Otherwise there is at least one. Their load and the sequences that wait for them set the number,
    up to one replica for each half of a group.
    """
    if cooldown is not None:
        return DesiredReplicas("resting", 1.0, 1.0, 0.0)
    if not signals.num_wanting:
        return DesiredReplicas("num_wanting", 0.0, 1.0, 0.0)
    if not signals.num_drafts:
        return DesiredReplicas("num_starved", signals.num_starved, 1.0, 1.0)
    if signals.num_rounds and signals.drafted_share < thresholds.least_drafted:
        return DesiredReplicas(NOT_PAYING, signals.drafted_share, thresholds.least_drafted, 0.0)
    work = signals.draft_busy + signals.num_starved / signals.num_wanting
    needed = max(
        _per_replica("draft_busy+starved", work, thresholds.draft_busy),
        _per_replica("draft_kv", signals.draft_kv, thresholds.kv),
        key=lambda candidate: candidate.replicas,
    )
    useful = _per_replica("num_wanting", signals.num_wanting, thresholds.max_group_size / 2)
    chosen = min(needed, useful, key=lambda candidate: candidate.replicas)
    return chosen._replace(limits=Bounds(1, ceil(useful.replicas)))


def desired_ingresses(num_requests: float, thresholds: Thresholds) -> DesiredReplicas:
    return _per_replica("requests", num_requests, thresholds.requests_per_ingress)


def rows_per_target(signals: CellSignals) -> float:
    return signals.num_live / max(signals.num_targets, 1.0)


def _per_replica(signal: str, value: float, threshold: float) -> DesiredReplicas:
    return DesiredReplicas(signal, value, threshold, value / threshold)
