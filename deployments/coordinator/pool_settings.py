"""The settings of a cell's groups and queues: the part of the service's that is the pool's."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from specdec_core.config import OverlapMode, PoolConfig, SpeculationConfig

MAX_OPEN_LEASES = 2
"""The next group's way to a replica, some 3 ms here, is hidden behind the group that it runs."""
_CPU_PREFILL_TOKENS = 256
_GPU_PREFILL_TOKENS = 8192
"""As vLLM."""


class PoolSettings(BaseSettings):
    """Fields of ServiceConfig."""

    max_num_seqs: int = 32
    """Most admitted sequences per target replica (the window, W)."""
    max_group_size: int = 8
    """Most sequences per target pass (B)."""
    max_queued: int = 1024
    prefill_chunk: int = 256
    """Most prompt tokens of one sequence per target pass."""
    max_prefill_tokens: int | None = Field(default=None, ge=1)
    """Of all sequences, at a target at a time, or else the chunk of one: streams wait for them.
    What it has lately cached is not counted.
    None: 256 for targets on CPUs, 8192 on GPUs."""
    max_group_wait_s: float = Field(default=0.1, ge=0)
    group_by_shape: bool = False
    """Prefer sequences that share a pass without padding to those that wait longest."""
    overlap: OverlapMode = OverlapMode.AUTO
    """Whether one half of a target's sequences is drafted while the other is verified."""
    lease_ttl_s: float = Field(default=30.0, gt=0)

    def pool_config_with(self, speculation: SpeculationConfig, *, has_gpu: bool) -> PoolConfig:
        """Raises ValueError for limits that do not fit together."""
        default = _GPU_PREFILL_TOKENS if has_gpu else _CPU_PREFILL_TOKENS
        return PoolConfig(
            max_group_size=self.max_group_size,
            window=self.max_num_seqs,
            max_queued=self.max_queued,
            prefill_chunk=self.prefill_chunk,
            max_prefill_tokens=self.max_prefill_tokens or default,
            max_group_wait_s=self.max_group_wait_s,
            group_by_shape=self.group_by_shape,
            overlap=self.overlap,
            max_open_leases=MAX_OPEN_LEASES,
            lease_ttl_s=self.lease_ttl_s,
            speculation=speculation,
        )
