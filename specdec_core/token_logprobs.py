"""Log-probabilities of chosen tokens: log_softmax of the raw logits, before any processor.

log_softmax gives a row the same bits in any company (a `sum` over the vocabulary would not), so
what is reported does not depend on the batch nor on how many tokens a round commits.

Shape legend: N rows, A rows that ask, V vocabulary, T the most ids that a row reports.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.choice_rules import ChoiceRow
from specdec_core.logprobs import TokenLogprobs
from specdec_core.sampling import NO_CHOICE


def measure_logprobs(
    logits: Tensor, rows: Sequence[ChoiceRow], tokens: Sequence[int], vocab_size: int
) -> list[TokenLogprobs | None]:
    """Of one token for every row of `logits`, float32 [N, V].

    None for a row that asks for none or whose token is NO_CHOICE. Waits for the device only when
    some row asks.
    """
    report: list[TokenLogprobs | None] = [None] * len(rows)
    counts = [row.rules.params.num_logprobs for row in rows]
    asking = [i for i, count in enumerate(counts) if count is not None and tokens[i] != NO_CHOICE]
    if not asking:
        return report
    logprobs_AV = logits[asking, :vocab_size].log_softmax(dim=-1)
    ids_AT = _most_probable(logprobs_AV, min(max(counts[i] or 0 for i in asking), vocab_size))
    own_A1 = torch.tensor([[tokens[i]] for i in asking], device=logits.device)
    values = logprobs_AV.gather(1, torch.cat([own_A1, ids_AT], dim=1)).tolist()
    for i, ids, (own, *top) in zip(asking, ids_AT.tolist(), values, strict=True):
        pairs = tuple(zip(ids, top, strict=True))
        report[i] = TokenLogprobs(own, pairs[: counts[i]])
    return report


def _most_probable(logprobs_AV: Tensor, count: int) -> Tensor:
    """Ids in stable order (value down, id up), [A, count]: topk alone may name any id of a tie.

    A float32's bits, the lower ones of a negative flipped, sort like the number; the id below
    them makes every key different.
    """
    bits_AV = logprobs_AV.add(0.0).view(torch.int32)
    rank_AV = torch.where(bits_AV < 0, bits_AV ^ 0x7FFFFFFF, bits_AV).long()
    ids_V = torch.arange(logprobs_AV.shape[1], device=logprobs_AV.device)
    return rank_AV.mul_(2**32).sub_(ids_V).topk(count, dim=-1).indices
