"""Batch speculative decoding with the same output, token for token, as autoregressive decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specdec_core.config import NgramConfig, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams

if TYPE_CHECKING:
    from specdec_core.engine import AlgorithmName, Engine

__all__ = [
    "AlgorithmName",
    "Engine",
    "FinishReason",
    "NgramConfig",
    "Request",
    "RequestStats",
    "SamplingParams",
    "SchedulerConfig",
    "SpecMethod",
    "SpeculationConfig",
    "TokenEvent",
]


def __getattr__(name: str) -> Any:
    """Import the engine on first use. Processes that only schedule never load torch."""
    if name in ("AlgorithmName", "Engine"):
        from specdec_core import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
