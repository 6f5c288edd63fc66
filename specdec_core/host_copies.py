"""Copies numbers from the host to a device without waiting for the device's earlier work.

A copy to a GPU out of pinned memory is queued after the earlier work, and the host continues. A
copy out of other memory waits until the GPU reaches it. PyTorch reuses pinned memory only after it
was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def on_device(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a new tensor of numbers, or of rows of them."""
    return to_device(torch.tensor(values, dtype=dtype), device)


def to_device(source: Tensor, device: torch.device) -> Tensor:
    """Return a copy of `source`, which is on the host, or `source` itself if the device is the
    host."""
    if device.type != "cuda":
        return source.to(device)
    return source.pin_memory().to(device, non_blocking=True)


def copy_without_waiting(source: Tensor, target: Tensor) -> None:
    """Copy to `target` from memory that the caller may change immediately afterwards."""
    is_gpu = target.device.type == "cuda"
    target.copy_(source.pin_memory() if is_gpu else source, non_blocking=is_gpu)
