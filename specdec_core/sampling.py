"""The coupled choice: token = argmax over the kept ids v of z(v) + T * g(s, i, v).

Letters: z logits, T temperature, g Gumbel noise, s seed, i absolute position; x = (z - max) / T is
the logarithm of a probability relative to the most probable id's. Shape legend: N rows, V
vocabulary, C candidates of a row in stable order (value down, then id up).

Every filter keeps a prefix of the stable order, so all of them together are one number per row: how
many ids of that order are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.noise import gumbel, noise_keys
from specdec_core.sampling_params import SamplingParams

NO_CHOICE = -1
"""Answered for a row whose greatest logit is not finite: all -inf, +inf or NaN. It has failed."""
_NEEDS_MORE_CANDIDATES = -2
_NUM_CANDIDATES = (256, 4096)
"""Sizes tried before a whole row is sorted: 0.12, 0.3 and 1.9 ms a row of 49,152 (2 threads)."""
_MASS_SCALE = 2.0**32
"""Probabilities become integers, in units of 2^-32 of the greatest: sums of them are exact in any
order, so that top-p is deterministic on every device."""


class ChoiceRow(NamedTuple):
    """Whose token a row of logits chooses."""

    params: SamplingParams
    position: int
    """Absolute place of the token in its sequence, prompt included."""


def choose(logits: Tensor, rows: Sequence[ChoiceRow], vocab_size: int) -> list[int]:
    """Choose an id below `vocab_size` for every row of `logits`, float32 [N, V], or NO_CHOICE.

    A row's choice depends on nothing but that row. Ties go to the lowest id. Waits for the device
    once, and again only for filters that keep more than a few hundred ids.
    """
    assert logits.shape[0] == len(rows)
    # Whatever changes logits (bans, bias, penalties) changes z here, before the filters.
    z_NV = logits[:, :vocab_size]
    z_max_N, chosen_N = z_NV.max(dim=-1)
    unfiltered = [i for i, row in enumerate(rows) if _is_sampled(row) and not _is_filtered(row)]
    if unfiltered:
        picked = _choose_unfiltered(*_take(z_NV, rows, unfiltered))
        chosen_N = _put(chosen_N, unfiltered, picked)
    pending = [i for i, row in enumerate(rows) if _is_sampled(row) and _is_filtered(row)]
    for num_candidates in (*_NUM_CANDIDATES, z_NV.shape[1]):
        if pending:
            picked = _choose_filtered(*_take(z_NV, rows, pending), num_candidates)
            chosen_N = _put(chosen_N, pending, picked)
        chosen: list[int] = torch.where(z_max_N.isfinite(), chosen_N, NO_CHOICE).tolist()
        pending = [i for i in pending if chosen[i] == _NEEDS_MORE_CANDIDATES]
        if not pending:
            break
    return chosen


def _is_sampled(row: ChoiceRow) -> bool:
    return not row.params.is_greedy


def _is_filtered(row: ChoiceRow) -> bool:
    return row.params.top_k > 0 or row.params.top_p < 1.0 or row.params.min_p > 0.0


def _take(
    z_NV: Tensor, rows: Sequence[ChoiceRow], indices: Sequence[int]
) -> tuple[Tensor, list[ChoiceRow]]:
    """The named rows; usually all, and then nothing is copied."""
    if len(indices) == len(rows):
        return z_NV, list(rows)
    return z_NV[torch.tensor(indices, device=z_NV.device)], [rows[i] for i in indices]


def _put(chosen_N: Tensor, indices: Sequence[int], picked: Tensor) -> Tensor:
    return chosen_N.index_copy(0, torch.tensor(indices, device=chosen_N.device), picked)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=like.device).unsqueeze(1)


def _keys(rows: Sequence[ChoiceRow], device: torch.device) -> Tensor:
    return noise_keys([(row.params.seed, row.position) for row in rows], device)


def _choose_unfiltered(z_NV: Tensor, rows: Sequence[ChoiceRow]) -> Tensor:
    ids_V = torch.arange(z_NV.shape[1], dtype=torch.int32, device=z_NV.device)
    temperature_N1 = _column([row.params.temperature for row in rows], z_NV)
    noise_NV = gumbel(_keys(rows, z_NV.device), ids_V)
    return noise_NV.mul_(temperature_N1).add_(z_NV).argmax(dim=-1)


def _choose_filtered(z_NV: Tensor, rows: Sequence[ChoiceRow], num_candidates: int) -> Tensor:
    """The choice among the kept ids; _NEEDS_MORE_CANDIDATES where they may lie beyond the C."""
    temperature_N1 = _column([row.params.temperature for row in rows], z_NV)
    x_NV = (z_NV - z_NV.amax(dim=-1, keepdim=True)).div_(temperature_N1)
    x_NC, ids_NC = _stable_candidates(x_NV, num_candidates)
    num_kept_N1, is_known_N1 = _count_kept(x_NV, x_NC, rows)
    noise_NC = gumbel(_keys(rows, z_NV.device), ids_NC.int())
    score_NC = noise_NC.mul_(temperature_N1).add_(z_NV.gather(1, ids_NC))
    is_kept_NC = torch.arange(ids_NC.shape[1], device=z_NV.device) < num_kept_N1
    score_NC.masked_fill_(~is_kept_NC, -math.inf)
    is_best_NC = score_NC == score_NC.amax(dim=-1, keepdim=True)
    lowest_N = ids_NC.masked_fill(~is_best_NC, z_NV.shape[1]).amin(dim=-1)
    return torch.where(is_known_N1.squeeze(1), lowest_N, _NEEDS_MORE_CANDIDATES)


def _stable_candidates(x_NV: Tensor, num_candidates: int) -> tuple[Tensor, Tensor]:
    """The first C values and ids in stable order, but for ids that tie with the last value."""
    if num_candidates >= x_NV.shape[1]:
        x_NC, ids_NC = torch.sort(x_NV, dim=-1, descending=True, stable=True)
        return x_NC, ids_NC
    ids_NC = x_NV.topk(num_candidates, dim=-1, sorted=False).indices.sort(dim=-1).values
    x_NC, order_NC = torch.sort(x_NV.gather(1, ids_NC), dim=-1, descending=True, stable=True)
    return x_NC, ids_NC.gather(1, order_NC)


def _count_kept(x_NV: Tensor, x_NC: Tensor, rows: Sequence[ChoiceRow]) -> tuple[Tensor, Tensor]:
    """How many ids min-p, then top-k, then top-p keep, and whether the C candidates tell.

    Which ids tie with the last candidate is unknown, so what is kept must lie above its value.
    """
    num_candidates, vocab_size = x_NC.shape[1], x_NV.shape[1]
    min_x_N1 = _column([_log(row.params.min_p) for row in rows], x_NC)
    top_k_N1 = _column([min(row.params.top_k or vocab_size, vocab_size) for row in rows], x_NC)
    is_kept_NC = (torch.arange(num_candidates, device=x_NC.device) < top_k_N1) & (x_NC >= min_x_N1)
    if num_candidates == vocab_size:
        ends_inside_N1 = torch.ones_like(is_kept_NC[:, -1:])
    else:
        ends_inside_N1 = ~is_kept_NC[:, -1:]
    if any(row.params.top_p < 1.0 for row in rows):
        mass_NC = _mass(x_NC).mul_(is_kept_NC)
        total_N1 = mass_NC.sum(dim=-1, keepdim=True)
        if _needs_whole_mass(rows, num_candidates):
            whole_N1 = _mass(x_NV).mul_(x_NV >= min_x_N1).sum(dim=-1, keepdim=True)
            total_N1 = torch.where(ends_inside_N1, total_N1, whole_N1)
        is_kept_NC &= _is_in_nucleus(mass_NC, total_N1, rows)
    num_kept_N1 = is_kept_NC.sum(dim=-1, keepdim=True).clamp_(min=1)
    is_clear_N1 = x_NC.gather(1, num_kept_N1 - 1) > x_NC[:, -1:]
    has_total_N1 = ends_inside_N1 | (top_k_N1 == vocab_size)
    return num_kept_N1, (is_clear_N1 & has_total_N1) | (num_candidates == vocab_size)


def _is_in_nucleus(mass_NC: Tensor, total_N1: Tensor, rows: Sequence[ChoiceRow]) -> Tensor:
    """Whether the ids before this one fall short of top_p; float64 holds these integers exactly."""
    top_p = [row.params.top_p if row.params.top_p < 1.0 else math.inf for row in rows]
    top_p_N1 = torch.tensor(top_p, dtype=torch.float64, device=mass_NC.device).unsqueeze(1)
    before_NC = mass_NC.cumsum(dim=-1) - mass_NC
    return before_NC.double() < top_p_N1 * total_N1.double()


def _needs_whole_mass(rows: Sequence[ChoiceRow], num_candidates: int) -> bool:
    """Whether top-p may weigh ids beyond the candidates: not behind a top-k among them."""
    top_ks = (row.params.top_k for row in rows if row.params.top_p < 1.0)
    return any(not 0 < top_k < num_candidates for top_k in top_ks)


def _mass(x: Tensor) -> Tensor:
    return x.exp().mul_(_MASS_SCALE).long()


def _log(min_p: float) -> float:
    return math.log(min_p) if min_p > 0.0 else -math.inf
