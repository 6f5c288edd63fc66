"""Signals of a cell at rest, with what a test changes of them."""

from __future__ import annotations

from deployments.autoscaling.signals import CellSignals

KV_TOKENS = 10_000.0


def signals(**changed: float) -> CellSignals:
    values = dict(
        num_targets=1.0,
        num_drafts=1.0,
        num_waiting=0.0,
        num_running=0.0,
        target_load=0.0,
        kv_tokens=0.0,
        waiting_tokens=0.0,
        kv_tokens_per_target=KV_TOKENS,
        num_wanting=0.0,
        num_starved=0.0,
        draft_busy=0.0,
        draft_kv=0.0,
        num_rounds=0.0,
        drafted_share=0.0,
    )
    return CellSignals(**{**values, **changed})
