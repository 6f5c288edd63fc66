"""How numbers of the host reach a device without a wait for what the device does before.

A copy to a GPU out of pinned memory takes its place behind the work that was begun, and the host
goes on; one out of any other memory waits until the GPU gets there. PyTorch keeps pinned memory
from being used again before it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def on_device(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A new tensor of numbers, or of rows of them."""
    return to_device(torch.tensor(values, dtype=dtype), device)


def to_device(source: Tensor, device: torch.device) -> Tensor:
    """`source`, which lies on the host; elsewhere a copy."""
    if device.type != "cuda":
        return source.to(device)
    return source.pin_memory().to(device, non_blocking=True)


def copy_without_waiting(source: Tensor, target: Tensor) -> None:
    """From memory that the caller may change at once."""
    is_gpu = target.device.type == "cuda"
    target.copy_(source.pin_memory() if is_gpu else source, non_blocking=is_gpu)
