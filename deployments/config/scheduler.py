"""Declares the limits of a cell's batches and queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from deployments.config.flags import flag, setting
from specdec_core.config import GPU_ROWS, MAX_CPU_ROWS

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
    import logging  # takes 5 ms, which every --help would wait for

    logger = logging.getLogger(__name__)
    rest = {name: v for name, v in values.items() if name not in ("max_group_size", "max_num_seqs")}
    if values.get("max_num_seqs") is None:
        logger.warning("max_group_size is now called max_num_seqs")
    elif values.get("window") is not None:
        raise ValueError("max_group_size is the old name of max_num_seqs: leave it out")
    else:
        logger.warning("max_group_size is now called max_num_seqs, and max_num_seqs window")
        rest["window"] = values["max_num_seqs"]
    return {**rest, "max_num_seqs": values["max_group_size"]}


def _check_grouping(name: str) -> str:
    from specdec_core.scheduler.grouping import check_grouping  # takes 54 ms, too long for --help

    return check_grouping(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Limits of the batches and queues of a cell."""

    PANEL: ClassVar[str] = "Scale"

    max_num_seqs: int | None = flag(
        None,
        "Maximum sequences per target pass (the batch). Default: on a CPU, the number up "
        "to which more sequences raise the throughput, at most 64; on a GPU, 128.",
        min=1,
    )
    window: int | None = flag(
        None, "Maximum admitted sequences per target replica. Default: 2 x --max-num-seqs.", min=1
    )
    max_group_size: int | None = flag(None, "Old name of --max-num-seqs.", hidden=True)
    """See `renamed_limits`."""
    max_queued: int = flag(
        1024, "Maximum waiting requests. Further requests are refused. Default: 1024."
    )
    prefill_chunk: int = setting(256)
    """Maximum prompt tokens of one sequence per target pass."""
    max_prefill_tokens: int | None = flag(
        None,
        "Maximum prompt tokens that a target computes at a time, while its streams wait. "
        "Default: 256 on CPUs, 8192 on GPUs.",
        bounds={"ge": 1},
    )
    """One sequence's chunk is always allowed if no other is there. Tokens that the target has
    lately cached are not counted."""
    max_group_wait_s: float = setting(0.1, ge=0)
    grouping: str = setting("oldest_first", check=_check_grouping)
    """Name of the grouping policy, which chooses the sequences of a pass."""
    group_by_shape: bool = setting(False)
    """Older way to set `grouping` to `equal_length`."""
    lease_ttl_s: float = setting(30.0, gt=0)

    def rows(self, *, has_gpu: bool) -> int:
        """Return the maximum sequences of a pass."""
        most = GPU_ROWS if has_gpu else MAX_CPU_ROWS
        return self.max_num_seqs or min(most, self.window or most)

    def limits(self, *, has_gpu: bool) -> dict[str, Any]:
        """Return the limits of the scheduler's configuration that do not depend on rows."""
        default = _GPU_PREFILL_TOKENS if has_gpu else _CPU_PREFILL_TOKENS
        return {
            "max_queued": self.max_queued,
            "prefill_chunk": self.prefill_chunk,
            "max_prefill_tokens": self.max_prefill_tokens or default,
            "max_group_wait_s": self.max_group_wait_s,
            "grouping": "equal_length" if self.group_by_shape else self.grouping,
            "max_open_leases": MAX_OPEN_LEASES,
            "lease_ttl_s": self.lease_ttl_s,
        }
