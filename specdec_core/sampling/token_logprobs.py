"""Log-probabilities of chosen tokens.

They are the log_softmax of the raw logits in float32, before any processor. This function gives a
row the same bits in any batch; a `sum` over the vocabulary would not. So the reported values depend
neither on the batch nor on the number of tokens that a round commits.

Shape legend: N rows, A rows that ask, P rows of a prompt, V vocabulary, T maximum IDs that a row
reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.host_copies import on_device
from specdec_core.logprobs import TokenLogprobs
from specdec_core.sampling.sampler import NO_CHOICE
from specdec_core.sampling.top_k import first_ids
from specdec_core.sampling_params import SampleRow


def measure_logprobs(
    logits: Tensor, rows: Sequence[SampleRow], tokens: Sequence[int], vocab_size: int
) -> list[TokenLogprobs | None]:
    """Return the log-probabilities of one token for every row of `logits`, [N, V].

    None for a row that asks for none or whose token is NO_CHOICE. Waits for the device only when
    some row asks.
    """
    report: list[TokenLogprobs | None] = [None] * len(rows)
    counts = [row.rules.params.num_logprobs for row in rows]
    asking = [i for i, count in enumerate(counts) if count is not None and tokens[i] != NO_CHOICE]
    if asking:
        requested = [counts[i] or 0 for i in asking]
        entries = _measure(
            _rows(logits[:, :vocab_size], asking), [tokens[i] for i in asking], requested
        )
        for i, entry in zip(asking, entries, strict=True):
            report[i] = entry
    return report


class PromptShare(NamedTuple):
    """Logits of one row of a pass: `num_rows` that score its prompt, then those to sample from."""

    num_rows: int
    tokens: Sequence[int]
    """Tokens that follow each of the first fed tokens; at most num_rows."""
    num_top: int
    """Number of most probable IDs to report with each token."""
    num_choices: int


def take_prompts(
    logits: Tensor, shares: Sequence[PromptShare], vocab_size: int
) -> tuple[list[tuple[TokenLogprobs, ...]], Tensor]:
    """Return each row's prompt log-probabilities, and the remaining rows of `logits`, [N, V].

    Rows are handled one at a time, because their logits need much memory. If none asks, `logits`
    are returned unchanged.
    """
    entries: list[tuple[TokenLogprobs, ...]] = [()] * len(shares)
    if not any(share.num_rows for share in shares):
        return entries, logits
    kept: list[int] = []
    start = 0
    for index, share in enumerate(shares):
        if share.tokens:
            logits_PV = logits[start : start + len(share.tokens), :vocab_size]
            counts = [share.num_top] * len(share.tokens)
            entries[index] = tuple(_measure(logits_PV, share.tokens, counts))
        start += share.num_rows
        kept += range(start, start + share.num_choices)
        start += share.num_choices
    return entries, _rows(logits, kept)


def _measure(
    logits_AV: Tensor, tokens: Sequence[int], counts: Sequence[int]
) -> list[TokenLogprobs]:
    """Return the log-probability of one token for every row, with `counts[i]` most probable IDs."""
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
