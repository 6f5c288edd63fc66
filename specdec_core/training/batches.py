"""The order in which documents are trained on, and batches of documents as tensors.

The order is a function of the seed alone. So a step's number is the whole position in the data.

Shape legend: B documents, S IDs of the longest, N answer tokens of all, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.sampling_params import derive_seed
from specdec_core.training.documents import Document

_SORTED_BATCHES = 16
"""Number of batches whose documents are sorted by length together. It gives little padding and much
shuffling."""


class Batch(NamedTuple):
    """A right-padded batch. A causal model needs no mask, because later tokens do not affect a
    token."""

    ids: Tensor
    """[B, S] int64."""
    positions: Tensor
    """[N]: indices, in the flattened [B * S], of the hidden states that predict the answer
    tokens."""
    top_ids: Tensor
    """[N, C] int64."""
    top_logprobs: Tensor
    """[N, C] float32."""


def plan_batches(
    lengths: Sequence[int], max_tokens: int, num_epochs: int, seed: int
) -> list[list[int]]:
    """Return the indices of the documents of every step.

    Batches have at most `max_tokens` IDs, padding included, and at least one document.
    """
    plan: list[list[int]] = []
    for epoch in range(num_epochs):
        generator = torch.Generator().manual_seed(derive_seed(seed, epoch + 1))
        order = torch.randperm(len(lengths), generator=generator).tolist()
        batches = _pack(_sort_within(order, lengths, max_tokens), lengths, max_tokens)
        shuffled = torch.randperm(len(batches), generator=generator).tolist()
        plan += [batches[i] for i in shuffled]
    return plan


def _sort_within(order: list[int], lengths: Sequence[int], max_tokens: int) -> list[int]:
    mean = max(sum(lengths) // max(len(lengths), 1), 1)
    span = max(_SORTED_BATCHES * max_tokens // mean, 1)
    starts = range(0, len(order), span)
    return [i for s in starts for i in sorted(order[s : s + span], key=lambda i: lengths[i])]


def _pack(order: list[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    batches: list[list[int]] = []
    longest = max_tokens + 1
    for index in order:
        longest = max(longest, lengths[index])
        if not batches or longest * (len(batches[-1]) + 1) > max_tokens:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches


def collate(documents: Sequence[Document], device: torch.device) -> Batch:
    longest = max(len(document.ids) for document in documents)
    ids_BS = torch.zeros(len(documents), longest, dtype=torch.long)
    positions = []
    for row, document in enumerate(documents):
        ids_BS[row, : len(document.ids)] = document.ids
        first = row * longest + document.answer_start - 1
        positions.append(torch.arange(first, first + document.num_answer_tokens))
    return Batch(
        ids_BS.to(device),
        torch.cat(positions).to(device),
        torch.cat([document.top_ids for document in documents]).long().to(device),
        torch.cat([document.top_logprobs for document in documents]).float().to(device),
    )
