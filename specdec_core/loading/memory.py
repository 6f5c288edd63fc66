"""How many tokens of KV fit on a device when nobody says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from specdec_core.errors import InvalidRequestError
from specdec_core.worker.cuda_graphs import capture as captures

CPU_FRACTION = 0.25
"""Of the available host memory, which other processes share; pages are only backed once written."""
RECORDING_BYTES = 512 * 2**20
"""For the recordings themselves, and what libraries take when they are made."""
_GATHERED_LAYERS = 2
"""A pass copies the keys and values of its rows, one layer at a time, where blocks are not read in
place; rows of unequal length are padded to the longest."""
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def default_kv_tokens(bytes_per_token: int, logit_bytes: int) -> int:
    """Return the KV tokens of a CPU: a share of the host memory that is free now. The logits of the
    largest verification, in bytes, are not shared out."""
    free = max(available_host_bytes() - logit_bytes, 0)
    return int(free * CPU_FRACTION) // bytes_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Of a GPU, in bytes, behind the weights."""

    free: int
    total: int
    own: int = 0
    """What this process has taken. What others have is gone from `free` alone."""

    @classmethod
    def now(cls, device: torch.device) -> DeviceMemory:
        """What the caching allocator holds and does not use counts as free."""
        captures.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        return cls(free=free, total=total, own=torch.cuda.memory_reserved(device))

    def budget(self, utilization: float) -> int:
        """What this process may still take of its share, which is its own alone: replicas that
        share a GPU, started together or not, have what they planned if their shares fit in it."""
        return min(self.free, round(self.total * utilization) - self.own)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVNeeds:
    """What shares a GPU's free memory with the KV cache."""

    bytes_per_token: int
    num_layers: int
    workspace_bytes: int = 0
    """Of the largest pass. Recorded passes take theirs from a pool of their own, once for all."""
    choice_bytes: int = 0
    """What the choice of a verification's tokens takes beyond that; none of it is recorded."""
    logit_bytes: int = 0
    """Where recorded passes leave their logits."""
    is_recorded: bool = False
    reads_blocks: bool = False
    """Attention reads the blocks in place: no pass copies keys and values."""
    companion_bytes: int = 0
    """Weights, workspace and logits of a draft that comes after."""
    companion_bytes_per_token: int = 0

    @property
    def kept_bytes(self) -> int:
        """What a model keeps that has run its largest pass, recorded and not."""
        recorded = self.workspace_bytes + self.logit_bytes + RECORDING_BYTES
        return self.workspace_bytes + recorded * self.is_recorded


def plan_kv_tokens(memory: DeviceMemory, needs: KVNeeds, utilization: float) -> int:
    """Tokens of KV that fit. Raises InvalidRequestError where not one does."""
    budget = memory.budget(utilization) - needs.companion_bytes
    budget -= needs.kept_bytes + needs.choice_bytes
    copied = 0 if needs.reads_blocks else _GATHERED_LAYERS * needs.bytes_per_token
    per_token = needs.bytes_per_token + needs.companion_bytes_per_token
    tokens = budget * needs.num_layers // (per_token * needs.num_layers + copied)
    if tokens < 1:
        raise InvalidRequestError(
            f"no memory is left for a KV cache: {memory.free / 2**30:.1f} of "
            f"{memory.total / 2**30:.1f} GiB are free behind the weights, of which this process "
            f"has {memory.own / 2**30:.1f}; {_way_out(memory, utilization)}"
        )
    return tokens


def _way_out(memory: DeviceMemory, utilization: float) -> str:
    others = memory.total - memory.free - memory.own
    if memory.free < round(memory.total * utilization) - memory.own:
        return (
            f"others have {others / 2**30:.1f}: lower the gpu_memory_utilization of those, or give "
            "this process a GPU of its own"
        )
    return (
        f"raise gpu_memory_utilization={utilization:.2g}, which is this process's own share, take "
        "a smaller model or one more GPU"
    )


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """How much more memory than before `work` takes on a GPU, at most; 0 elsewhere. What PyTorch's
    allocator takes from the device counts too: it holds more than is in use."""
    if device.type != "cuda":
        return 0
    captures.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    used, held = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    work()
    torch.cuda.synchronize(device)
    more_used = torch.cuda.max_memory_allocated(device) - used
    return max(more_used, torch.cuda.max_memory_reserved(device) - held)


def available_host_bytes() -> int:
    """What the machine could give without swapping, or what the container may still take if that
    is less. Both count what files are cached in: a machine that has been up for a while has hardly
    a free page, and gives those back first."""
    free = _meminfo_available_bytes()
    return min(free, _cgroup_free_bytes(free))


def _meminfo_available_bytes() -> int:
    try:
        return _figure(_MEMINFO, "MemAvailable:") * 1024
    except (OSError, ValueError):  # not Linux
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_free_bytes(unlimited: int) -> int:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return unlimited
        used = int((_CGROUP / "memory.current").read_text())
        return int(limit) - used + _figure(_CGROUP / "memory.stat", "inactive_file")
    except (OSError, ValueError):
        return unlimited


def _figure(path: Path, name: str) -> int:
    """Raises OSError, or ValueError where no line of the file has the name."""
    for line in path.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    raise ValueError(f"{path} says nothing of {name}")
