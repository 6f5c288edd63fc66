"""Signals of a cell at rest, with what a test changes of them."""

from __future__ import annotations

from dataclasses import fields

from deployments.autoscaling.signals import CellSignals

KV_TOKENS = 10_000.0


def signals(**changed: float) -> CellSignals:
    nothing = dict.fromkeys((one.name for one in fields(CellSignals)), 0.0)
    at_rest = dict(num_targets=1.0, num_drafts=1.0, kv_tokens_per_target=KV_TOKENS)
    return CellSignals(**{**nothing, **at_rest, **changed})
