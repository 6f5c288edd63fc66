"""How often a drafted token is accepted, from the two distributions alone.

Letters: p target, q draft, d their total variation, x an emitted token. Shape legend: N positions,
V vocabulary. Every function takes float64 logarithms, so that nothing underflows before it must.

The coupled choice takes x = argmax(log p + g) and the draft y = argmax(log q + g) with the same
Gumbel noise g. With exponential variables E = exp(-g), both take v iff E_v is at most
E_u / max(p_u / p_v, q_u / q_v) for every u, which has probability 1 / sum_u max(p_u/p_v, q_u/q_v).
In the order of p/q that sum is one tail of p and one head of q.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Acceptance(NamedTuple):
    """Probabilities, [N] each: that a drafted token is accepted."""

    rejection: Tensor
    """By rejection sampling: 1 - d, the most that any rule can reach."""
    coupled: Tensor
    """By the coupled choice."""
    bound: Tensor
    """(1 - d) / (1 + d): no pair of distributions makes the coupled choice worse than that."""
    own_noise: Tensor
    """The target still chooses by coupled noise, the draft samples with noise of its own."""
    no_noise: Tensor
    """The same with a draft that takes its most probable token."""


def acceptances(
    log_p_NV: Tensor, log_q_NV: Tensor, emitted_N: Tensor
) -> tuple[Acceptance, Acceptance]:
    """On average over what is emitted, and given the x that the target did emit.

    The averages are over the noise, exactly. Given the outputs, positions are independent of each
    other, and so can be put together to rounds.
    """
    both_NV = _both_choose(log_p_NV, log_q_NV)
    min_NV = torch.minimum(log_p_NV, log_q_NV).exp()
    rejection_N = min_NV.sum(dim=-1)
    bound_N = rejection_N / (2.0 - rejection_N)
    x_N1, guess_N1 = emitted_N.unsqueeze(1), log_q_NV.argmax(dim=-1, keepdim=True)
    p_N1, q_N1 = log_p_NV.gather(1, x_N1).exp(), log_q_NV.gather(1, x_N1).exp()
    on_average = Acceptance(
        rejection=rejection_N,
        coupled=both_NV.sum(dim=-1),
        bound=bound_N,
        own_noise=(log_p_NV + log_q_NV).exp().sum(dim=-1),
        no_noise=log_p_NV.gather(1, guess_N1).exp().squeeze(1),
    )
    given_output = Acceptance(
        rejection=(min_NV.gather(1, x_N1) / p_N1).squeeze(1),
        coupled=(both_NV.gather(1, x_N1) / p_N1).squeeze(1),
        bound=bound_N,
        own_noise=q_N1.squeeze(1),
        no_noise=(guess_N1 == x_N1).double().squeeze(1),
    )
    return on_average, given_output


def _both_choose(log_p_NV: Tensor, log_q_NV: Tensor) -> Tensor:
    """P(x = y = v) for every id v, [N, V]: p_v q_v / (q_v P(p/q >= r_v) + p_v Q(p/q < r_v))."""
    ratio_NV = (log_p_NV - log_q_NV).nan_to_num(0.0)  # ids that neither takes
    order_NV = ratio_NV.argsort(dim=-1)
    p_NV, q_NV = log_p_NV.gather(1, order_NV).exp(), log_q_NV.gather(1, order_NV).exp()
    tail_of_p_NV = p_NV.flip(1).cumsum(dim=1).flip(1)
    head_of_q_NV = q_NV.cumsum(dim=1) - q_NV
    rate_NV = q_NV * tail_of_p_NV + p_NV * head_of_q_NV
    both_NV = torch.where(rate_NV > 0, p_NV * q_NV / rate_NV, 0.0)
    return torch.empty_like(both_NV).scatter_(1, order_NV, both_NV)


def expected_rounds(acceptances: Sequence[float], num_draft_tokens: int) -> float:
    """Rounds that emit a given output of len(acceptances) tokens, drafting K tokens in each.

    Position i accepts with its own probability, independently. The last round is cut at the end.
    """
    length = len(acceptances)
    rounds = [0.0] * (length + num_draft_tokens + 2)
    for start in reversed(range(length)):
        rounds[start], reach = 1.0, 1.0
        for end in range(start, min(start + num_draft_tokens, length)):
            rounds[start] += reach * (1.0 - acceptances[end]) * rounds[end + 1]
            reach *= acceptances[end]
        rounds[start] += reach * rounds[start + num_draft_tokens + 1]
    return rounds[0]
