"""A stand-in for PyTorch's attention over a block table: its arguments mean these rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specdec_core.layers.attention.paged import VarlenAttention


def varlen_by_hand(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: None,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: Tensor,
    block_table: Tensor,
    num_splits: int,
) -> Tensor:
    """As the documentation of torch.nn.attention.varlen has it, a query at a time."""
    assert window_size == (-1, 0)
    assert num_splits == 1
    assert enable_gqa == (query.shape[1] != key.shape[2])
    output = torch.empty_like(query)
    groups = query.shape[1] // key.shape[2]
    for row in range(len(seqused_k)):
        first, end = cu_seq_q[row : row + 2].tolist()
        num_keys = int(seqused_k[row])
        assert end - first <= max_q
        assert num_keys <= max_k
        keys, values = (pool[block_table[row]].flatten(0, 1) for pool in (key, value))
        for token in range(first, end):
            seen = num_keys - (end - 1 - token)
            if seen <= 0:
                output[token] = math.nan
                continue
            for head in range(query.shape[1]):
                scores = keys[:seen, head // groups] @ query[token, head] * scale
                output[token, head] = scores.softmax(0) @ values[:seen, head // groups]
    return output


BY_HAND = VarlenAttention(varlen_by_hand)
