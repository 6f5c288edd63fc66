"""How many tokens of KV fit on a device when nobody says."""

from __future__ import annotations

import os
from pathlib import Path

import torch

CPU_FRACTION = 0.25
"""Of the available host memory, which other processes share; pages are only backed once written."""
ACCELERATOR_FRACTION = 0.85
"""Of the memory left behind the weights; the rest is for activations."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


def default_kv_tokens(device: torch.device, bytes_per_token: int) -> int:
    """A share of the memory that is free now, in tokens."""
    if device.type == "cuda":
        budget = int(torch.cuda.mem_get_info(device)[0] * ACCELERATOR_FRACTION)
    else:
        budget = int(available_host_bytes() * CPU_FRACTION)
    return budget // bytes_per_token


def available_host_bytes() -> int:
    """Free pages of the machine, or what the container may still take if that is less."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(free, _cgroup_free_bytes(free))


def _cgroup_free_bytes(unlimited: int) -> int:
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
        return unlimited if limit == "max" else int(limit) - int(_CGROUP_USED.read_text())
    except (OSError, ValueError):
        return unlimited
