"""The settings of each replica's share of a GPU."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings


class GpuSettings(BaseSettings):
    """Fields of ServiceConfig."""

    target_num_gpus: float | None = Field(default=None, ge=0)
    """GPUs of one replica. None: chosen by config/gpu_allocation.py, or a CPU if Ray has no GPU."""
    draft_num_gpus: float | None = Field(default=None, ge=0)
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of its GPU's memory, for each replica.

    None: 0.9, which the replicas on one GPU divide by what each needs.
    """

    @property
    def has_gpu(self) -> bool:
        """Whether targets run on GPUs. Known once `with_gpus` has seen what there is."""
        return bool(self.target_num_gpus)
