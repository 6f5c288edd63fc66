"""The settings that say which part of a GPU a replica has."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings


class GpuSettings(BaseSettings):
    """Fields of ServiceConfig."""

    target_num_gpus: float | None = Field(default=None, ge=0)
    """GPUs of one replica. None: what config/gpu_allocation.py finds; a CPU if Ray has no GPU."""
    draft_num_gpus: float | None = Field(default=None, ge=0)
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Of its GPU, for each replica. None: 0.9, which those on one GPU share by what each needs."""

    @property
    def has_gpu(self) -> bool:
        """Whether targets run on GPUs, once `with_gpus` has seen what there is."""
        return bool(self.target_num_gpus)
