"""The coupled choice once more, slowly and in plain Python: the oracle of the sampling tests.

Written from docs/algorithm.md, not from the code under test. Float32 is rounded to where the
definition says float32; exp and log are the C library's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from specdec_core.sampling_params import SamplingParams

M64 = 2**64 - 1
M32 = 2**32 - 1


def f32(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


def fin64(x: int) -> int:
    x &= M64
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & M64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def mix64(seed: int, counter: int) -> int:
    golden = 0x9E3779B97F4A7C15
    return fin64(fin64(seed + golden) + golden * (counter + 1))


def hash31(seed: int, position: int, token_id: int) -> int:
    """Unsigned arithmetic modulo 2^32, where the code under test wraps signed integers."""
    key = mix64(seed, position)
    low, high = key & M32, key >> 32
    x = (token_id * 0x9E3779B1 + low) & M32
    x ^= x >> 16
    x = x * 0x85EBCA6B & M32
    x ^= high
    x ^= x >> 13
    x = x * 0xC2B2AE35 & M32
    x ^= x >> 16
    return x & 0x7FFFFFFF


def gumbel(seed: int, position: int, token_id: int) -> float:
    w = min(f32(f32(hash31(seed, position, token_id)) + 0.5) * 2.0**-31, 1 - 2.0**-24)
    return -math.log(-math.log1p(-w))


def kept_ids(z: Sequence[float], params: SamplingParams) -> list[int]:
    """min-p, then top-k, then top-p, over ids in stable order (value down, id up)."""
    top = max(z)
    x = [f32(f32(value - top) / f32(params.temperature)) for value in z]
    order = sorted(range(len(z)), key=lambda v: (-x[v], v))
    if params.min_p > 0:
        order = [v for v in order if x[v] >= f32(math.log(params.min_p))]
    if params.top_k > 0:
        order = order[: params.top_k]
    if params.top_p < 1:
        mass = [int(f32(math.exp(x[v])) * 2**32) for v in order]
        before = [sum(mass[:i]) for i in range(len(order))]
        order = [v for v, b in zip(order, before, strict=True) if b < params.top_p * sum(mass)]
    return order


def choose_one(z: Sequence[float], params: SamplingParams, position: int) -> int:
    top = max(z)
    if not math.isfinite(top) or any(math.isnan(value) for value in z):
        return -1
    if params.temperature == 0:
        return z.index(top)
    scores = {
        v: z[v] + params.temperature * gumbel(params.seed, position, v) for v in kept_ids(z, params)
    }
    best = max(scores.values())
    return min(v for v, score in scores.items() if score == best)
