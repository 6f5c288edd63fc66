"""A draft's choice of a token without the host: greedy, or coupled to the target by its noise.

A proposal never changes what the target decides. The choice may therefore be approximate in cases
where the exact choice (sampler.py) would look at a row again. Filters see only a row's first
candidates, and top-p takes its share of a float32 sum. Greedy rows and rows without filters get the
exact choice. Rows whose logits a processor changes are never drafted here.

Shape legend: R rows, V vocabulary, C candidates.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.sampling.filters import has_filters
from specdec_core.sampling.gumbel import gumbel
from specdec_core.sampling.sampler import NO_CHOICE
from specdec_core.sampling_params import SamplingParams

_NUM_CANDIDATES = 64
_LEAST_BITS = (1 << 32) - 1


class ChoiceKind(IntEnum):
    """Work that the rows of a pass need, at most."""

    GREEDY = 0
    FILTERED = 1
    """All sampled rows have filters."""
    SAMPLED = 2
    """Some sampled rows have no filters, so the noise of every ID is computed."""


class ChoiceFacts(NamedTuple):
    """Sampling parameters of the rows, [R, 1] each; views of one int32 tensor."""

    seed_low: Tensor
    seed_high: Tensor
    temperature: Tensor
    """Temperature in float32, like the fields below."""
    top_k: Tensor
    """Candidates to keep; inf keeps all."""
    top_p: Tensor
    """Share of the mass to keep; inf keeps all."""
    least_x: Tensor
    """Minimum logarithm of a probability relative to the greatest; -inf keeps all."""
    min_confidence: Tensor


NUM_FACTS = len(ChoiceFacts._fields)
_NUM_INTEGERS = 2


def kind_of(rows: Sequence[SamplingParams]) -> ChoiceKind:
    sampled = [params for params in rows if params.temperature > 0.0]
    if not sampled:
        return ChoiceKind.GREEDY
    return ChoiceKind.FILTERED if all(map(has_filters, sampled)) else ChoiceKind.SAMPLED


def pack_facts(rows: Sequence[SamplingParams], min_confidence: float, num_rows: int) -> array[int]:
    """Return the numbers of ChoiceFacts. Each fact is stored for all rows before the next fact, as
    bits of float32 or int32."""
    columns: list[array[int] | array[float]] = [
        array("I", [params.seed & _LEAST_BITS for params in rows]),
        array("I", [params.seed >> 32 for params in rows]),
        array("f", [params.temperature for params in rows]),
        array("f", [float(params.top_k or math.inf) for params in rows]),
        array("f", [params.top_p if params.top_p < 1.0 else math.inf for params in rows]),
        array("f", [math.log(p.min_p) if p.min_p > 0.0 else -math.inf for p in rows]),
        array("f", [min_confidence] * len(rows)),
    ]
    numbers = array("i")
    for column in columns:
        numbers.frombytes(column.tobytes() + bytes(4 * (num_rows - len(rows))))
    return numbers


def facts_of(numbers: Tensor) -> ChoiceFacts:
    """Return views of int32 [NUM_FACTS * R]."""
    columns = numbers.view(NUM_FACTS, -1, 1)
    integers, floats = columns[:_NUM_INTEGERS], columns[_NUM_INTEGERS:].view(torch.float32)
    return ChoiceFacts(*integers, *floats)


def choose_on_device(
    z_RV: Tensor, position_R1: Tensor, facts: ChoiceFacts, kind: ChoiceKind, confident_only: bool
) -> Tensor:
    """Return an ID for every row of float32 logits, [R], or NO_CHOICE.

    A row gets NO_CHOICE if no logit is finite. With `confident_only` it also does if the ID is
    less probable than the row's min_confidence.
    """
    best = z_RV.max(dim=-1, keepdim=True)
    chosen_R1 = best.indices
    if kind is not ChoiceKind.GREEDY:
        sampled_R1 = _sample(z_RV, best.values, position_R1, facts, kind)
        chosen_R1 = torch.where(facts.temperature > 0.0, sampled_R1, chosen_R1)
    is_chosen_R1 = best.values.isfinite()
    if confident_only:
        log_p_R1 = z_RV.gather(1, chosen_R1) - z_RV.logsumexp(dim=-1, keepdim=True)
        is_chosen_R1 = is_chosen_R1 & (log_p_R1.exp() >= facts.min_confidence)
    return chosen_R1.where(is_chosen_R1, NO_CHOICE).squeeze(1)


def _sample(
    z_RV: Tensor, max_R1: Tensor, position_R1: Tensor, facts: ChoiceFacts, kind: ChoiceKind
) -> Tensor:
    keys_R2 = noise_keys_on_device(_seeds(facts), position_R1)
    filtered_R1 = _choose_filtered(z_RV, max_R1, keys_R2, facts)
    if kind is ChoiceKind.FILTERED:
        return filtered_R1
    ids_V = torch.arange(z_RV.shape[1], dtype=torch.int32, device=z_RV.device)
    score_RV = gumbel(keys_R2, ids_V).mul_(facts.temperature).add_(z_RV)
    has_filters_R1 = facts.top_k.isfinite() | facts.top_p.isfinite() | facts.least_x.isfinite()
    return torch.where(has_filters_R1, filtered_R1, score_RV.argmax(dim=-1, keepdim=True))


def _choose_filtered(z_RV: Tensor, max_R1: Tensor, keys_R2: Tensor, facts: ChoiceFacts) -> Tensor:
    """Apply min-p, then top-k, then top-p to the first candidates in stable order, and choose."""
    count = min(_NUM_CANDIDATES, z_RV.shape[1])
    ids_RC = z_RV.topk(count, dim=-1, sorted=False).indices.sort(dim=-1).values
    scale_R1 = facts.temperature.clamp(min=torch.finfo(torch.float32).tiny)
    x_RC = (z_RV.gather(1, ids_RC) - max_R1) / scale_R1
    x_RC, order_RC = x_RC.sort(dim=-1, descending=True, stable=True)
    ids_RC = ids_RC.gather(1, order_RC)
    is_in_RC = (x_RC >= facts.least_x) & (torch.arange(count, device=z_RV.device) < facts.top_k)
    mass_RC = x_RC.exp() * is_in_RC
    whole_R1 = ((z_RV - max_R1) / scale_R1).exp().sum(dim=-1, keepdim=True)
    goes_on_R1 = is_in_RC[:, -1:] & (facts.top_k > count)
    total_R1 = torch.where(goes_on_R1, whole_R1, mass_RC.sum(dim=-1, keepdim=True))
    is_kept_RC = is_in_RC & (mass_RC.cumsum(dim=-1) - mass_RC < facts.top_p * total_R1)
    score_RC = gumbel(keys_R2, ids_RC.int()).mul_(facts.temperature).add_(z_RV.gather(1, ids_RC))
    score_RC.masked_fill_(~is_kept_RC, -math.inf)
    return ids_RC.gather(1, score_RC.argmax(dim=-1, keepdim=True))


def _seeds(facts: ChoiceFacts) -> Tensor:
    return (facts.seed_high.long() << 32) | (facts.seed_low.long() & _LEAST_BITS)


def noise_keys_on_device(seeds_R1: Tensor, positions_R1: Tensor) -> Tensor:
    """Return gumbel.noise_keys of int64 tensors, [R, 2]. The hash is that of seeds.mix64."""
    hash_R1 = _finalise64(_finalise64(seeds_R1 + _GOLDEN64) + (positions_R1 + 1) * _GOLDEN64)
    return torch.cat([_as_int32(hash_R1), _as_int32(hash_R1 >> 32)], dim=1)


def _finalise64(x: Tensor) -> Tensor:
    """Return the final mix of the hash. `>>` repeats the sign, so the bits that it moves in are
    masked away."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed64(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed64(0x94D049BB133111EB)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _as_int32(x: Tensor) -> Tensor:
    return (((x & _LEAST_BITS) ^ (1 << 31)) - (1 << 31)).int()


def _signed64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_GOLDEN64 = _signed64(0x9E3779B97F4A7C15)
