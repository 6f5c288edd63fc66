"""Declares each replica's share of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deployments.config.flags import flag


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOptions:
    """GPUs of one replica. None: chosen by config/gpu_allocation.py, or a CPU if Ray has no GPU."""

    PANEL: ClassVar[str] = "Scale"

    target_num_gpus: float | None = flag(
        None,
        "GPUs of one target replica, which may be a part of one. Default: the GPUs of the cluster.",
        bounds={"ge": 0},
    )
    draft_num_gpus: float | None = flag(
        None, "GPUs of one draft replica. Default: the GPUs of the cluster.", bounds={"ge": 0}
    )
