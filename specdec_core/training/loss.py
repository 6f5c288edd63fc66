"""Distance of a draft's distribution from its target's, if the target's most likely IDs are known.

Letters: p target, q draft. Shape legend: N tokens, C candidates (the target's most likely IDs), R
IDs that the draft may propose. Candidates that the draft may not propose have no column. Their mass
is left out of p, and the rest of p is scaled to sum to 1.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

_LEAST = 1e-6
"""Minimum mass. Smaller masses are raised to it, because their logarithms would dominate all
others."""


class Loss(StrEnum):
    KL = "kl"
    """Forward KL divergence of p from q. p is known at the candidates, and as one mass beyond
    them."""
    HARD = "hard"
    """Cross-entropy of the target's own choice."""


class Teacher(NamedTuple):
    """The target's distribution in the draft's columns."""

    columns: Tensor
    """[N, C] int64. The value is arbitrary for candidates without a column."""
    p: Tensor
    """[N, C]: scaled probability of candidates that have a column, and 0 of others."""
    listed_mass: Tensor
    """[N, 1]: mass that the target gives the IDs that have a column."""
    is_first_listed: Tensor
    """[N]: whether the target's own choice has a column."""


def teach(top_ids_NC: Tensor, top_logprobs_NC: Tensor, column_V: Tensor | None) -> Teacher:
    """Return the target's distribution in the draft's columns.

    `column_V` gives the column of an ID, or -1 if it has none. If `column_V` is None, the column is
    the ID itself.
    """
    columns_NC = top_ids_NC if column_V is None else column_V[top_ids_NC]
    is_listed_NC = columns_NC >= 0
    p_NC = top_logprobs_NC.exp()
    missing_N1 = (p_NC * ~is_listed_NC).sum(dim=-1, keepdim=True)
    mass_N1 = (1.0 - missing_N1).clamp(min=_LEAST)
    p_NC = p_NC * is_listed_NC / mass_N1
    return Teacher(columns_NC.clamp(min=0), p_NC, mass_N1, is_listed_NC[:, 0])


def draft_loss(kind: Loss, logits_NR: Tensor, teacher: Teacher) -> Tensor:
    """Return the mean loss over all tokens that teach anything."""
    if kind is Loss.HARD:
        hard_N = functional.cross_entropy(
            logits_NR.float(), teacher.columns[:, 0], reduction="none"
        )
        return _mean(hard_N, teacher.is_first_listed)
    return _mean(_forward_kl(logits_NR, teacher), teacher.p.sum(dim=-1) > _LEAST)


def _forward_kl(logits_NR: Tensor, teacher: Teacher) -> Tensor:
    lse_N1 = logits_NR.float().logsumexp(dim=-1, keepdim=True)
    log_q_NC = logits_NR.gather(1, teacher.columns).float() - lse_N1
    p_NC, is_listed_NC = teacher.p, teacher.p > 0
    rest_p_N = (1.0 - p_NC.sum(dim=-1)).clamp(min=_LEAST)
    rest_q_N = (1.0 - (log_q_NC.exp() * is_listed_NC).sum(dim=-1)).clamp(min=_LEAST)
    log_p_NC = p_NC.clamp(min=_LEAST).log()
    listed_N = (p_NC * (log_p_NC - log_q_NC)).sum(dim=-1)
    return listed_N + rest_p_N * (rest_p_N.log() - rest_q_N.log())


def _mean(loss_N: Tensor, counts_N: Tensor) -> Tensor:
    weight_N = counts_N.to(loss_N.dtype)
    return (loss_N * weight_N).sum() / weight_N.sum().clamp(min=1.0)


def overlap(logits_NR: Tensor, teacher: Teacher) -> Tensor:
    """Return a lower bound of sum_v min(p, q) for every token, [N]: the mass on which both agree.

    The sum is 1 - d for the total variation d. Coupled sampling accepts at least (1 - d) / (1 + d)
    of the tokens drafted at temperature 1.
    """
    q_NC = logits_NR.float().softmax(dim=-1).gather(1, teacher.columns)
    return torch.minimum(q_NC, teacher.p * teacher.listed_mass).sum(dim=-1)
