"""Log-probabilities of chosen tokens: log_softmax of the raw logits in float32, before any
processor.

log_softmax gives a row the same bits in any company (a `sum` over the vocabulary would not), so
what is reported does not depend on the batch nor on how many tokens a round commits.

Shape legend: N rows, A rows that ask, P rows that tell of a prompt, V vocabulary, T the most ids
that a row reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.choice_rules import SampleRow
from specdec_core.host_copies import on_device
from specdec_core.logprobs import TokenLogprobs
from specdec_core.sampling.sampler import NO_CHOICE
from specdec_core.sampling.top_k import first_ids


def measure_logprobs(
    logits: Tensor, rows: Sequence[SampleRow], tokens: Sequence[int], vocab_size: int
) -> list[TokenLogprobs | None]:
    """Of one token for every row of `logits`, [N, V].

    None for a row that asks for none or whose token is NO_CHOICE. Waits for the device only when
    some row asks.
    """
    report: list[TokenLogprobs | None] = [None] * len(rows)
    counts = [row.rules.params.num_logprobs for row in rows]
    asking = [i for i, count in enumerate(counts) if count is not None and tokens[i] != NO_CHOICE]
    if asking:
        asked = [counts[i] or 0 for i in asking]
        found = _measure(_rows(logits[:, :vocab_size], asking), [tokens[i] for i in asking], asked)
        for i, entry in zip(asking, found, strict=True):
            report[i] = entry
    return report


class PromptShare(NamedTuple):
    """One feed's rows of logits: `num_rows` that tell of its prompt, then those that choose."""

    num_rows: int
    tokens: Sequence[int]
    """What stands behind the first so many fed tokens; at most num_rows."""
    num_top: int
    """Most probable ids to report with each."""
    num_choices: int


def take_prompts(
    logits: Tensor, shares: Sequence[PromptShare], vocab_size: int
) -> tuple[list[tuple[TokenLogprobs, ...]], Tensor]:
    """What every feed asks of its prompt, and the rows that are left, of `logits`, [N, V].

    One feed at a time: so many rows need memory. Where nobody asks, `logits` come back as they are.
    """
    found: list[tuple[TokenLogprobs, ...]] = [()] * len(shares)
    if not any(share.num_rows for share in shares):
        return found, logits
    kept: list[int] = []
    start = 0
    for place, share in enumerate(shares):
        if share.tokens:
            logits_PV = logits[start : start + len(share.tokens), :vocab_size]
            counts = [share.num_top] * len(share.tokens)
            found[place] = tuple(_measure(logits_PV, share.tokens, counts))
        start += share.num_rows
        kept += range(start, start + share.num_choices)
        start += share.num_choices
    return found, _rows(logits, kept)


def _measure(
    logits_AV: Tensor, tokens: Sequence[int], counts: Sequence[int]
) -> list[TokenLogprobs]:
    """Of one token for every row, with as many of its most probable ids as it asks for."""
    logprobs_AV = logits_AV.float().log_softmax(dim=-1)
    ids_AT = first_ids(logprobs_AV, min(max(counts), logits_AV.shape[1]))
    own_A1 = on_device(tokens, torch.long, logits_AV.device).unsqueeze(1)
    values = logprobs_AV.gather(1, torch.cat([own_A1, ids_AT], dim=1)).tolist()
    rows = zip(ids_AT.tolist(), values, counts, strict=True)
    return [
        TokenLogprobs(own, tuple(zip(ids, top, strict=True))[:count])
        for ids, (own, *top), count in rows
    ]


def _rows(logits: Tensor, indices: Sequence[int]) -> Tensor:
    return logits.index_select(0, on_device(indices, torch.long, logits.device))
