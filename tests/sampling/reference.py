"""The coupled choice once more, slowly and in plain Python: the oracle of the sampling tests.

Written from docs/algorithm.md, not from the code under test. Float32 is rounded to where the
definition says float32; exp and log are the C library's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import accumulate

from specdec_core.sampling_params import SamplingParams, SamplingRules

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


def process_one(z: Sequence[float], rules: SamplingRules, ids: Sequence[int]) -> list[float]:
    """The logits behind `ids` after bans, bias and penalties, one id after the other."""
    params = rules.params
    prompt, output = list(ids[: rules.prompt_len]), list(ids[rules.prompt_len :])
    processed = []
    for v, value in enumerate(z):
        if _is_banned(v, rules, output):
            value = -math.inf
        for token_id, bias in params.logit_bias:
            value = f32(value + f32(bias)) if token_id == v else value
        if v in prompt or v in output:
            factor = f32(params.repetition_penalty)
            value = f32(value / factor) if value > 0 else f32(value * factor)
        value = f32(value - f32(output.count(v) * f32(params.frequency_penalty)))
        value = f32(value - f32((v in output) * f32(params.presence_penalty)))
        processed.append(value)
    return processed


def _is_banned(v: int, rules: SamplingRules, output: list[int]) -> bool:
    params = rules.params
    if params.allowed_token_ids and v not in params.allowed_token_ids:
        return True
    if len(output) < params.min_tokens and v in rules.stop_ids:
        return True
    for *beginning, end in params.bad_words:
        just_emitted = output[len(output) - len(beginning) :] if beginning else []
        if end == v and len(output) >= len(beginning) and just_emitted == beginning:
            return True
    return False


def logprobs(z: Sequence[float]) -> list[float]:
    top = max(z)
    norm = math.log(math.fsum(math.exp(value - top) for value in z))
    return [value - top - norm for value in z]


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
        before = [0, *accumulate(mass[:-1])]
        limit = params.top_p * sum(mass)
        order = [v for v, b in zip(order, before, strict=True) if b < limit]
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
