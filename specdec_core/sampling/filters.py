"""The filters top-k, top-p and min-p: the first IDs of a row in stable order, and which are kept.

Letters: z logits, T temperature. x = (z - max) / T is the logarithm of a probability relative to
that of the most probable ID. Its exponential is the ID's mass. Shape legend: N rows, V vocabulary,
C candidates of a row in stable order (x down, then ID up), W columns of a row.

Each of these filters keeps a prefix of the stable order. The code here, the kernels for a CPU
(cpu.py) and the choice on a device (device.py) depend on that. A filter that keeps other IDs is a
logit processor: it sets the logits of all other IDs to -inf (logit_processors.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.host_copies import on_device
from specdec_core.sampling.top_k import top_ids
from specdec_core.sampling_params import SamplingParams

_MASS_SCALE = 2.0**32
"""Factor that turns masses into integers, in units of 2^-32 of the greatest. Integer sums are exact
in any order, so top-p is deterministic on every device."""
_SUM_ERROR = 2.0**-12
"""Bound on the rounding error of a float32 sum over a vocabulary, as a share of the sum."""


def has_filters(params: SamplingParams) -> bool:
    """Return True if a filter may drop IDs. False if all IDs are kept."""
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


class Candidates(NamedTuple):
    """A row's first IDs. Every ID that is not listed is at most as probable as the last one. If IDs
    tie with the last one, any of them may be listed."""

    ids: Tensor
    z: Tensor
    x: Tensor
    """All three have the shape [N, C]."""
    edge: Tensor
    """x of the last candidate, [N, 1]; -inf when all IDs are listed."""

    @property
    def is_certain(self) -> Tensor:
        """True if the place of the candidate, and of every ID before it, is certain, [N, C]."""
        return self.x > self.edge

    @property
    def greatest_beyond(self) -> Tensor:
        """Upper bound on the logits of all IDs that are not listed, [N, 1]."""
        return self.z.amin(dim=-1, keepdim=True).where(self.edge > -math.inf, -math.inf)


def first_candidates(z_NV: Tensor, scale_N1: Tensor, count: int) -> Candidates:
    """Return the first `count` candidates of every row, or all if there are fewer."""
    count = min(count, z_NV.shape[1])
    ids_NC = top_ids(z_NV, count)
    z_NC = z_NV.gather(1, ids_NC)
    x_NC = (z_NC - z_NC.amax(dim=-1, keepdim=True)).div_(scale_N1)
    x_NC, order_NC = torch.sort(x_NC, dim=-1, descending=True, stable=True)
    edge_N1 = x_NC[:, -1:] if count < z_NV.shape[1] else torch.full_like(scale_N1, -math.inf)
    return Candidates(ids_NC.gather(1, order_NC), z_NC.gather(1, order_NC), x_NC, edge_N1)


def filter_candidates(
    first: Candidates, params: Sequence[SamplingParams], z_NV: Tensor, scale_N1: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the candidates that min-p, then top-k, then top-p keep for certain, and perhaps, [N,
    C].

    Top-p takes a share of a mass that is known only within bounds, so some candidates are kept only
    perhaps. The mass is exact if the filters before top-p end among the candidates.
    """
    min_x_N1 = _column([_log(p.min_p) for p in params], first.x)
    top_k_N1 = _column([p.top_k or math.inf for p in params], first.x)
    is_in_NC = first.x >= min_x_N1
    is_in_NC &= torch.arange(first.x.shape[1], device=first.x.device) < top_k_N1
    if all(p.top_p == 1.0 for p in params):
        return is_in_NC, is_in_NC
    mass_NC = first.x.exp().mul_(_MASS_SCALE).long().mul_(is_in_NC)
    before_NC = mass_NC.cumsum(dim=-1).sub_(mass_NC).double()
    least_N1 = most_N1 = mass_NC.sum(dim=-1, keepdim=True).double()
    if any(_reaches_beyond(p, first.x.shape[1], z_NV.shape[1]) for p in params):
        low_N1, high_N1 = _mass_bounds(z_NV, first.z[:, :1], scale_N1)
        goes_on_N1 = is_in_NC[:, -1:]
        is_only_N1 = _column([_has_only_top_p(p) for p in params], first.x) > 0
        least_N1 = low_N1.maximum(least_N1).where(goes_on_N1 & is_only_N1, least_N1)
        most_N1 = high_N1.where(goes_on_N1, most_N1)
    top_p_N1 = _column([p.top_p if p.top_p < 1.0 else math.inf for p in params], before_NC)
    is_kept_NC = is_in_NC & (before_NC < top_p_N1 * least_N1)
    return is_kept_NC, is_in_NC & (before_NC < top_p_N1 * most_N1)


def _reaches_beyond(params: SamplingParams, num_candidates: int, vocab_size: int) -> bool:
    """Return True if top-p may weigh IDs beyond the candidates."""
    limit = min(params.top_k or vocab_size, vocab_size)
    return params.top_p < 1.0 and limit > num_candidates


def _has_only_top_p(params: SamplingParams) -> bool:
    return params.top_k == 0 and params.min_p == 0.0


def _mass_bounds(z_NV: Tensor, max_N1: Tensor, scale_N1: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of a row's whole mass, at half the price of the mass itself.

    A float32 sum over the vocabulary may depend on the other rows of the batch, and so may the
    bounds. Any choice that they decide is still the same.
    """
    x_NV = (z_NV - max_N1).div_(scale_N1)
    mass_N1 = x_NV.exp_().sum(dim=-1, keepdim=True).double().mul_(_MASS_SCALE)
    return mass_N1 * (1.0 - _SUM_ERROR) - z_NV.shape[1], mass_N1 * (1.0 + _SUM_ERROR)


def _log(min_p: float) -> float:
    return math.log(min_p) if min_p > 0.0 else -math.inf


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return on_device(values, like.dtype, like.device).unsqueeze(1)
