"""The algorithms that stand side by side in the tables, and how each is configured."""

from __future__ import annotations

from specdec_core import SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.config import KPolicyName
from specdec_core.engine import AlgorithmName

PLAIN = AlgorithmName.AUTOREGRESSIVE
COMPARED = (AlgorithmName.EQSPEC, AlgorithmName.EXSPEC_PADDED, AlgorithmName.EXSPEC)
PAPER_WINDOW_RATIO = 3
"""W = 48 at B = 16 in the paper."""


def scheduler_config(
    method: SpecMethod, num_draft_tokens: int, batch_size: int, window: int | None = None
) -> SchedulerConfig:
    """B rows a group from a window of W sequences; the paper's ratio of the two by default."""
    return SchedulerConfig(
        max_group_size=batch_size,
        window=window or PAPER_WINDOW_RATIO * batch_size,
        max_queued=100_000,
        grouping="equal_length",
        speculation=SpeculationConfig(
            method=method, num_draft_tokens=num_draft_tokens, k_policy=KPolicyName.FIXED
        ),
    )
