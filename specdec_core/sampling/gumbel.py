"""The coupled noise g(s, i, v): standard Gumbel, hashed from seed, position and token ID.

Only integer arithmetic is used until the last step. So the draft and the target see the same noise
for the same token, on any device and in any batch (algorithm.md section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.host_copies import on_device
from specdec_core.sampling_params import mix64

_LARGEST_UNIFORM = 1.0 - 2.0**-24
"""The largest float32 below 1. The number 1 itself would give infinite noise."""
LARGEST_NOISE = 22.1808
"""Maximum noise: the noise of 31 zero bits, rounded up."""
NOISE_ERROR = 2.0**-16
"""Bound on how far rounding lets the noise of a larger number exceed that of a smaller one."""


def noise_keys(pairs: Sequence[tuple[int, int]], device: torch.device) -> Tensor:
    """Return the keys of (seed, position) pairs, [N, 2] int32: the two halves of their 64-bit
    hash."""
    hashes = [mix64(seed, position) for seed, position in pairs]
    halves = [[_as_int32(h), _as_int32(h >> 32)] for h in hashes]
    return on_device(halves, torch.int32, device).view(len(pairs), 2)


def _as_int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def hash31(keys_N2: Tensor, ids: Tensor) -> Tensor:
    """Return 31 random bits for every ID, int32; `ids` is [V] or [N, V] of int32.

    Products and sums wrap around. `>>` repeats the sign, so the bits that it moves in are masked
    away.
    """
    low_N1, high_N1 = keys_N2[:, 0:1], keys_N2[:, 1:2]
    x = ids * _as_int32(0x9E3779B1) + low_N1
    x ^= (x >> 16).bitwise_and_(0xFFFF)
    x *= _as_int32(0x85EBCA6B)
    x ^= high_N1
    x ^= (x >> 13).bitwise_and_(0x7FFFF)
    x *= _as_int32(0xC2B2AE35)
    x ^= (x >> 16).bitwise_and_(0xFFFF)
    return x.bitwise_and_(0x7FFFFFFF)


def gumbel(keys_N2: Tensor, ids: Tensor) -> Tensor:
    """Return noise for every ID, float32, [N, V]."""
    return gumbel_of(hash31(keys_N2, ids))


def gumbel_of(h31: Tensor) -> Tensor:
    """Return the noise of 31 random bits. A smaller number gives more noise.

    w is finest near 0. The largest noise comes from there, and so do the IDs that win.
    """
    w = h31.float().add_(0.5).mul_(2.0**-31).clamp_(max=_LARGEST_UNIFORM)
    return w.neg_().log1p_().neg_().log_().neg_()
