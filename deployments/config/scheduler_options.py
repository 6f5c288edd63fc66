"""Declares the sizes of batches and queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deployments.config.flags import flag


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Sizes of batches and queues."""

    PANEL: ClassVar[str] = "Scale"

    max_num_seqs: int | None = flag(
        None,
        "Maximum sequences per target pass (the batch). Default: the number that gains on a CPU, "
        "at most 64; 128 on a GPU.",
        min=1,
    )
    window: int | None = flag(
        None, "Maximum admitted sequences per target replica. Default: 2 x --max-num-seqs.", min=1
    )
