"""KV cache size in blocks on a device when the configuration does not set it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.spec import KVCacheSpec
from specdec_core.worker.cuda_graphs import capture

CPU_FRACTION = 0.25
"""Share of the available host memory for KV. Other processes use this memory too. The system backs
pages only when they are written."""
RECORDING_BYTES = 512 * 2**20
"""Bytes for the recordings themselves, and for what libraries allocate when passes are recorded."""
_GATHERED_LAYERS = 2
"""Layers of keys and values that a pass copies. Without in-place reading, a pass copies those of
its rows one layer at a time. Rows of unequal length are padded to the longest."""
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def default_kv_blocks(spec: KVCacheSpec, logit_bytes: int) -> int:
    """Return the KV blocks of a CPU: a share of the host memory that is free now. The logits of the
    largest verification, `logit_bytes`, are subtracted first."""
    free = max(available_host_bytes() - logit_bytes, 0)
    return int(free * CPU_FRACTION) // spec.bytes_per_block


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of a GPU in bytes, after the weights were loaded."""

    free: int
    total: int
    own: int = 0
    """Bytes that this process has taken. Memory of other processes only reduces `free`."""

    @classmethod
    def now(cls, device: torch.device) -> DeviceMemory:
        """Return the current memory. Unused memory in the caching allocator counts as free."""
        capture.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        return cls(free=free, total=total, own=torch.cuda.memory_reserved(device))

    def budget(self, utilization: float) -> int:
        """Return the bytes that this process may still take of its share.

        The share belongs to this process alone. If the shares of all replicas on a GPU fit
        together, each gets its planned memory, in any order of start.
        """
        return min(self.free, round(self.total * utilization) - self.own)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVNeeds:
    """Needs that share a GPU's free memory with the KV cache."""

    spec: KVCacheSpec
    num_layers: int
    workspace_bytes: int = 0
    """Workspace of the largest pass. Recorded passes share one workspace from their own pool."""
    choice_bytes: int = 0
    """Extra bytes for sampling the tokens of a verification. Sampling is never recorded."""
    logit_bytes: int = 0
    """Bytes of the buffer in which recorded passes leave their logits."""
    is_recorded: bool = False
    reads_blocks: bool = False
    """True if attention reads the blocks in place, so that no pass copies keys and values."""
    companion_bytes: int = 0
    """Weights, workspace and logits of a draft that is loaded later."""
    companion_bytes_per_block: int = 0

    @property
    def kept_bytes(self) -> int:
        """Return the bytes that a model keeps after its largest pass ran, both eager and
        recorded."""
        recorded = self.workspace_bytes + self.logit_bytes + RECORDING_BYTES
        return self.workspace_bytes + recorded * self.is_recorded


def plan_kv_blocks(memory: DeviceMemory, needs: KVNeeds, utilization: float) -> int:
    """Return the number of KV blocks that fit. Raises InvalidRequestError if not even one fits."""
    budget = memory.budget(utilization) - needs.companion_bytes
    budget -= needs.kept_bytes + needs.choice_bytes
    block_bytes = needs.spec.bytes_per_block
    copied = 0 if needs.reads_blocks else _GATHERED_LAYERS * block_bytes
    per_block = block_bytes + needs.companion_bytes_per_block
    num_blocks = budget * needs.num_layers // (per_block * needs.num_layers + copied)
    if num_blocks < 1:
        raise InvalidRequestError(
            "no memory is left for a KV cache. With the weights loaded, "
            f"{memory.free / 2**30:.1f} of {memory.total / 2**30:.1f} GiB are free, "
            f"and this process has {memory.own / 2**30:.1f} GiB; "
            f"{_way_out(memory, utilization)}"
        )
    return num_blocks


def _way_out(memory: DeviceMemory, utilization: float) -> str:
    others = memory.total - memory.free - memory.own
    if memory.free < round(memory.total * utilization) - memory.own:
        return (
            f"other processes have {others / 2**30:.1f} GiB. Lower their "
            "gpu_memory_utilization, or give this process its own GPU"
        )
    return (
        f"raise gpu_memory_utilization={utilization:.2g}, which is this process's own "
        "share, use a smaller model or add a GPU"
    )


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Return the peak of extra GPU memory that `work` takes, in bytes; 0 on other devices.

    Memory that PyTorch's allocator takes from the device counts too. The allocator holds more than
    is in use.
    """
    if device.type != "cuda":
        return 0
    capture.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    used, held = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    work()
    torch.cuda.synchronize(device)
    more_used = torch.cuda.max_memory_allocated(device) - used
    return max(more_used, torch.cuda.max_memory_reserved(device) - held)


def available_host_bytes() -> int:
    """Return the memory that the machine can give without swapping, or the container's rest if
    smaller.

    Both figures include the file cache. A machine that has run for a while has almost no free page,
    and releases the file cache first.
    """
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
    """Return the figure called `name`. Raises OSError, or ValueError if no line has this name."""
    for line in path.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    raise ValueError(f"{path} has no line {name}")
