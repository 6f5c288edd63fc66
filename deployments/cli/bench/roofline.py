"""Limits of the machine: bytes and arithmetic of a pass over measured bandwidth and rate.

A pass reads every weight of a linear once, however many rows it has. It multiplies each row with
each weight. So a pass takes at least as long as the slower of the two. Reads and arithmetic of
attention are not included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import linear

from specdec_core.worker.model_runner import ModelRunner

_READ_NUMBERS = 32 * 2**20
"""Float32 numbers: 128 MB, more than a cache holds for one process."""
_WIDTH = 2048
_ROWS = 512
_NUM_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Limits of one model on this machine, with this process's threads."""

    weight_bytes: int
    """Bytes of all linears, the head included."""
    flops_per_row: int
    bytes_per_second: float
    """Bandwidth of a sum over memory."""
    flops_per_second: float
    """Rate of a large product in the model's type."""

    @property
    def read_s(self) -> float:
        """Seconds to read the weights. No pass is faster."""
        return self.weight_bytes / self.bytes_per_second

    @property
    def row_s(self) -> float:
        """Seconds of arithmetic per row."""
        return self.flops_per_row / self.flops_per_second

    @property
    def free_rows(self) -> int:
        """Number of rows whose arithmetic takes no longer than reading the weights."""
        return int(self.read_s / self.row_s)

    def __str__(self) -> str:
        return (
            f"roofline: a pass reads {self.weight_bytes / 1e6:.0f} MB of weights, at "
            f"{self.bytes_per_second / 1e9:.1f} GB/s {self.read_s * 1e3:.1f} ms; a row computes "
            f"{self.row_s * 1e3:.3f} ms at {self.flops_per_second / 1e12:.2f} TFLOP/s, so up to "
            f"{self.free_rows} rows cost no more than one; plain decoding of one sequence makes at "
            f"most {1 / self.read_s:.0f} tokens/s"
        )


def measure_roofline(model: ModelRunner) -> Roofline:
    """Measure the limits. This takes about a second."""
    sizes = [_num_weights(module) for module in model.module.modules()]
    num_weights = sum(sizes)
    return Roofline(
        weight_bytes=num_weights * model.dtype.itemsize,
        flops_per_row=2 * num_weights,
        bytes_per_second=_bandwidth(model.device),
        flops_per_second=_matmul_rate(model.dtype, model.device),
    )


def _num_weights(module: nn.Module) -> int:
    """Return the number of weights of any kind of linear. A wrapper counts 0; its child counts."""
    if any(True for _ in module.children()):
        return 0
    return getattr(module, "in_features", 0) * getattr(module, "out_features", 0)


@torch.inference_mode()
def _bandwidth(device: torch.device) -> float:
    numbers = torch.ones(_READ_NUMBERS, device=device)
    return numbers.numel() * numbers.itemsize / _least_s(numbers.sum, device)


@torch.inference_mode()
def _matmul_rate(dtype: torch.dtype, device: torch.device) -> float:
    rows = torch.ones(_ROWS, _WIDTH, dtype=dtype, device=device)
    weight = torch.ones(_WIDTH, _WIDTH, dtype=dtype, device=device)
    return 2 * _ROWS * _WIDTH**2 / _least_s(lambda: linear(rows, weight), device)


def _least_s(work: Callable[[], object], device: torch.device) -> float:
    """Return the minimum time of several runs. Other work on the machine only makes runs longer."""
    seconds = []
    for _ in range(_NUM_RUNS):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds)
