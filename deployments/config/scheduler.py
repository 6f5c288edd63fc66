"""The settings of a cell's groups and queues, which the service passes to the scheduler."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings

from specdec_core.config import (
    GPU_ROWS,
    MAX_CPU_ROWS,
    WINDOW_PER_ROW,
    OverlapMode,
    PoolConfig,
    SpeculationConfig,
)

_logger = logging.getLogger(__name__)

MAX_OPEN_LEASES = 2
"""Maximum open leases of a replica.

The next group takes some 3 ms to reach a replica here. It travels while the replica runs a group.
"""
_CPU_PREFILL_TOKENS = 256
_GPU_PREFILL_TOKENS = 8192
"""The same as in vLLM."""


def renamed_limits(values: dict[str, Any]) -> dict[str, Any]:
    """Translate the old name `max_group_size` of the batch.

    At that time `max_num_seqs` was the window. Raises ValueError if old and new names set the same
    limit twice.
    """
    if values.get("max_group_size") is None:
        return values
    rest = {name: v for name, v in values.items() if name not in ("max_group_size", "max_num_seqs")}
    if values.get("max_num_seqs") is None:
        _logger.warning("max_group_size is now called max_num_seqs")
    elif values.get("window") is not None:
        raise ValueError("max_group_size is the old name of max_num_seqs: leave it out")
    else:
        _logger.warning("max_group_size is now called max_num_seqs, and max_num_seqs window")
        rest["window"] = values["max_num_seqs"]
    return {**rest, "max_num_seqs": values["max_group_size"]}


class PoolSettings(BaseSettings):
    """Fields of ServiceConfig."""

    max_num_seqs: int | None = Field(default=None, ge=1)
    """Maximum sequences per target pass (the batch, B).

    None on CPUs: as many as gain tokens per second in the timings of each target at its start, at
    most 64. None on GPUs: 128.
    """
    window: int | None = Field(default=None, ge=1)
    """Maximum admitted sequences per target replica (W). None: twice the sequences of a pass."""
    max_group_size: int | None = None
    """Old name of max_num_seqs; see `renamed_limits`."""
    max_queued: int = 1024
    prefill_chunk: int = 256
    """Maximum prompt tokens of one sequence per target pass."""
    max_prefill_tokens: int | None = Field(default=None, ge=1)
    """Maximum prompt tokens of all sequences that a target has at a time, because streams wait for
    them.

    One sequence's chunk is always allowed if no other is there. Tokens that the target has lately
    cached are not counted. None: 256 for targets on CPUs, 8192 on GPUs.
    """
    max_group_wait_s: float = Field(default=0.1, ge=0)
    group_by_shape: bool = False
    """Prefer sequences that share a pass without padding to those that wait longest."""
    overlap: OverlapMode = OverlapMode.AUTO
    """Whether one half of a target's sequences is drafted while the other half is verified."""
    lease_ttl_s: float = Field(default=30.0, gt=0)

    def pool_config_with(self, speculation: SpeculationConfig, *, has_gpu: bool) -> PoolConfig:
        """Return the scheduler's configuration. Raises ValueError for limits that do not fit
        together."""
        default = _GPU_PREFILL_TOKENS if has_gpu else _CPU_PREFILL_TOKENS
        most = GPU_ROWS if has_gpu else MAX_CPU_ROWS
        rows = self.max_num_seqs or min(most, self.window or most)
        return PoolConfig(
            max_group_size=rows,
            window=self.window or WINDOW_PER_ROW * rows,
            max_queued=self.max_queued,
            prefill_chunk=self.prefill_chunk,
            max_prefill_tokens=self.max_prefill_tokens or default,
            max_group_wait_s=self.max_group_wait_s,
            grouping="equal_length" if self.group_by_shape else "oldest_first",
            overlap=self.overlap,
            max_open_leases=MAX_OPEN_LEASES,
            lease_ttl_s=self.lease_ttl_s,
            speculation=speculation,
        )
