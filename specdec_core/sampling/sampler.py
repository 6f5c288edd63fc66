"""The coupled choice: token = argmax over the kept IDs v of z(v) + T * g(s, i, v).

Letters: z logits, T temperature, g Gumbel noise, s seed, i absolute position. Shape legend: N rows,
V vocabulary, C candidates of a row (sampling/filters.py), W columns of a row (sampling/top_k.py).

On a CPU our kernels decide nearly every row (sampling/cpu.py). The other rows, and all rows on
other devices, are decided here. At temperature 0 the greatest logit wins. Otherwise a row's first
candidates decide if they show that no other ID can win. If they do not, the row is searched
further. Every way leads to the same choice. It depends only on the row, and ties go to the lowest
ID.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec_core.host_copies import on_device
from specdec_core.sampling.cpu import UNDECIDED, choice_kernels_for
from specdec_core.sampling.filters import filter_candidates, first_candidates, has_filters
from specdec_core.sampling.gumbel import (
    LARGEST_NOISE,
    NOISE_ERROR,
    gumbel,
    gumbel_of,
    hash31,
    noise_keys,
)
from specdec_core.sampling.logit_processors import process
from specdec_core.sampling.top_k import fold, indices_in
from specdec_core.sampling_params import SampleRow

_Attempt = tuple[Sequence[int], Callable[[Tensor, list[SampleRow], int], Tensor], int]
"""Rows, the function that examines them, and how much of each row it examines."""

NO_CHOICE = -1
"""Result for a row whose greatest logit is not finite: all -inf, +inf or NaN. The row has
failed."""
_FEW_CANDIDATES = 64
_MORE_CANDIDATES = (512, 4096)
"""Numbers of candidates that are tried before a whole row is sorted. A sort takes several times as
long as the largest of them."""
_NUM_COLUMNS = 32
_COLUMN_SIZE = 16
"""Number of columns that are tried, and IDs in a column, before the noise of every ID is
computed."""
_LOW_TEMPERATURE = 0.4
"""Temperature below which few candidates often decide even a row without filters."""


def choose(logits: Tensor, rows: Sequence[SampleRow], vocab_size: int) -> list[int]:
    """Choose an ID below `vocab_size` for every row of `logits`, [N, V], or NO_CHOICE. Waits for
    the device, and again for rows that their first candidates leave undecided."""
    assert logits.shape[0] == len(rows)
    z_NV = logits[:, :vocab_size]
    if any([row.rules.logit_fields for row in rows]):
        z_NV = process(z_NV, rows)
    kernels = choice_kernels_for(z_NV)
    if kernels is None:
        return _choose_in_attempts(z_NV, rows)
    chosen = kernels.choose(z_NV, rows)
    return _settled(z_NV, rows, chosen) if UNDECIDED in chosen else chosen


def _settled(z_NV: Tensor, rows: Sequence[SampleRow], chosen: Sequence[int]) -> list[int]:
    """Return `chosen` with a choice for each row that is still undecided."""
    left = [i for i, token in enumerate(chosen) if token == UNDECIDED]
    tokens = iter(_choose_in_attempts(_take(z_NV, left), [rows[i] for i in left]))
    return [next(tokens) if token == UNDECIDED else token for token in chosen]


def _choose_in_attempts(z_NV: Tensor, rows: Sequence[SampleRow]) -> list[int]:
    """Run the attempts step by step. The attempts of a step have different rows, so the host waits
    once for all of them."""
    vocab_size, everyone = z_NV.shape[1], range(len(rows))
    chosen = [UNDECIDED] * len(rows)
    greedy = [i for i in everyone if rows[i].rules.params.temperature == 0.0]
    sampled = [i for i in everyone if rows[i].rules.params.temperature > 0.0]
    unfiltered = [i for i in sampled if not has_filters(rows[i].rules.params)]
    hot = {i for i in unfiltered if rows[i].rules.params.temperature > _LOW_TEMPERATURE}
    first: list[_Attempt] = [
        (greedy, _choose_greatest, 1),
        ([i for i in sampled if i not in hot], _choose_among, _FEW_CANDIDATES),
        (sorted(hot), _choose_by_column, _NUM_COLUMNS),
    ]
    others: list[_Attempt] = [
        ([i for i in unfiltered if i not in hot], _choose_by_column, _NUM_COLUMNS),
        (unfiltered, _choose_by_column, vocab_size),
        *[(sampled, _choose_among, size) for size in (*_MORE_CANDIDATES, vocab_size)],
    ]
    for step in (first, *([attempt] for attempt in others)):
        _try(step, z_NV, rows, chosen)
    assert UNDECIDED not in chosen, "all ids of a row decide it"
    return chosen


def _try(
    step: Sequence[_Attempt], z_NV: Tensor, rows: Sequence[SampleRow], chosen: list[int]
) -> None:
    """Write into `chosen` the results of the attempts for rows that are still undecided."""
    pending: list[int] = []
    attempted: list[Tensor] = []
    for indices, attempt, size in step:
        left = [i for i in indices if chosen[i] == UNDECIDED]
        if left:
            attempted.append(attempt(_take(z_NV, left), [rows[i] for i in left], size))
            pending += left
    if attempted:
        for i, token in zip(pending, torch.cat(attempted).tolist(), strict=True):
            chosen[i] = token


def _take(z_NV: Tensor, indices: Sequence[int]) -> Tensor:
    """Return the named rows, without a copy if they are all rows."""
    if len(indices) == len(z_NV):
        return z_NV
    return z_NV.index_select(0, on_device(indices, torch.long, z_NV.device))


def _choose_greatest(z_NV: Tensor, rows: Sequence[SampleRow], num_ids: int) -> Tensor:
    """Return the choice at temperature 0. No filter removes the greatest logit. `max` returns the
    first of equal values."""
    best = z_NV.max(dim=-1)
    return best.indices.where(best.values.isfinite(), NO_CHOICE)


def _choose_among(z_NV: Tensor, rows: Sequence[SampleRow], num_candidates: int) -> Tensor:
    """Return the choice if the first candidates decide it.

    The best of the candidates that are perhaps kept must be kept for certain. Every ID that is not
    listed must be dropped for certain, or be too improbable for any noise.
    """
    z_NV = z_NV.float()
    keys_N2, temperature_N1 = _noise_of(rows, z_NV)
    scale_N1 = temperature_N1.masked_fill(temperature_N1 == 0.0, 1.0)  # it may round to 0
    first = first_candidates(z_NV, scale_N1, num_candidates)
    params = [row.rules.params for row in rows]
    is_kept_NC, may_be_kept_NC = filter_candidates(first, params, z_NV, scale_N1)
    score_NC = gumbel(keys_N2, first.ids.int()).mul_(temperature_N1).add_(first.z)
    score_NC.masked_fill_(~(may_be_kept_NC & first.is_certain), -math.inf)
    best_N1, chosen_N1 = _best(score_NC, first.ids)
    is_kept_N1 = (is_kept_NC & (first.ids == chosen_N1)).any(dim=-1, keepdim=True)
    is_rest_out_N1 = ~(may_be_kept_NC & ~first.is_certain).any(dim=-1, keepdim=True)
    limit_N1 = first.greatest_beyond + temperature_N1 * LARGEST_NOISE
    is_decided_N1 = is_kept_N1 & (is_rest_out_N1 | (best_N1 > limit_N1))
    return _answer(chosen_N1, is_decided_N1, first.z[:, :1])


def _choose_by_column(z_NV: Tensor, rows: Sequence[SampleRow], num_columns: int) -> Tensor:
    """Return the choice among all IDs if it is in the columns that might score highest.

    A column's score is at most its greatest logit plus its greatest noise. The smallest bits of the
    column give the greatest noise.
    """
    z_NV = z_NV.float()
    keys_N2, temperature_N1 = _noise_of(rows, z_NV)
    ids_V = torch.arange(z_NV.shape[1], dtype=torch.int32, device=z_NV.device)
    bits_NV = hash31(keys_N2, ids_V)
    max_NW = fold(z_NV, _COLUMN_SIZE).amax(dim=1)
    noise_NW = gumbel_of(fold(bits_NV, _COLUMN_SIZE).amin(dim=1)).add_(NOISE_ERROR)
    limit_NW = noise_NW.mul_(temperature_N1).add_(max_NW)
    count = min(num_columns, limit_NW.shape[1])
    limits = limit_NW.topk(min(count + 1, limit_NW.shape[1]), dim=-1)
    ids_NC = indices_in(limits.indices[:, :count], z_NV.shape[1], _COLUMN_SIZE)
    z_NC = z_NV.gather(1, ids_NC)
    score_NC = gumbel_of(bits_NV.gather(1, ids_NC)).mul_(temperature_N1).add_(z_NC)
    best_N1, chosen_N1 = _best(score_NC, ids_NC)
    is_decided_N1 = (best_N1 > limits.values[:, count:]).all(dim=-1, keepdim=True)
    return _answer(chosen_N1, is_decided_N1, z_NC.amax(dim=-1, keepdim=True))


def _noise_of(rows: Sequence[SampleRow], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return noise keys and temperatures, [N, 2] and [N, 1]."""
    keys_N2 = noise_keys([(row.rules.params.seed, row.position) for row in rows], like.device)
    temperatures = [[row.rules.params.temperature] for row in rows]
    return keys_N2, on_device(temperatures, like.dtype, like.device)


def _best(score_NC: Tensor, ids_NC: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best score and the lowest ID that has it, [N, 1] each."""
    best_N1 = score_NC.amax(dim=-1, keepdim=True)
    is_best_NC = score_NC == best_N1
    lowest_N1 = ids_NC.masked_fill(~is_best_NC, torch.iinfo(ids_NC.dtype).max)
    return best_N1, lowest_N1.amin(dim=-1, keepdim=True)


def _answer(chosen_N1: Tensor, is_decided_N1: Tensor, max_N1: Tensor) -> Tensor:
    decided_N1 = chosen_N1.where(is_decided_N1, UNDECIDED)
    return decided_N1.where(max_N1.isfinite(), NO_CHOICE).squeeze(1)
