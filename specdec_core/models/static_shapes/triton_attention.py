"""Attention that reads the blocks of the cache where they lie: a kernel of our own, in Triton.

PyTorch's builds for CUDA bring Triton along. A program takes some queries of one row that share a
key head, and goes through the row's keys from the first to the last, in tiles of one size: so a
query's sums never depend on its company. Shape legend as in block_attention.py; M queries of a
program, S keys of a tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from specdec_core.models.static_shapes.block_attention import BlockRows

_QUERIES = 32
"""Of a program: 4 query heads a key head, times 5 tokens of a verification, are 20."""
_KEYS = 64
_NUM_WARPS = 4
_LEAST_DIM = 16
"""Of a tile: tl.dot takes no smaller one."""


@triton.jit(do_not_specialize=["table_width"])  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    output,
    queries,
    keys,
    values,
    query_ends,
    key_counts,
    blocks,
    scaling,
    table_width,
    GROUPS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
):
    row, key_head, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_token = tl.load(query_ends + row)
    num_tokens = tl.load(query_ends + row + 1) - first_token
    num_keys = tl.load(key_counts + row)
    folded_M = tile * QUERIES + tl.arange(0, QUERIES)
    token_M, group_M = folded_M // GROUPS, folded_M % GROUPS
    is_there_M = token_M < num_tokens
    place_M = num_keys - num_tokens + token_M
    # Tiles have sizes that are powers of two: behind the head they are zeros, which change no sum.
    number_D = tl.arange(0, PADDED_DIM)
    is_head_D = number_D < HEAD_DIM
    head_M = (first_token + token_M) * (KEY_HEADS * GROUPS) + key_head * GROUPS + group_M
    query_MD = head_M.to(tl.int64)[:, None] * HEAD_DIM + number_D[None, :]
    is_query_MD = is_there_M[:, None] & is_head_D[None, :]
    q_MD = tl.load(queries + query_MD, mask=is_query_MD, other=0.0)
    greatest_M = tl.full([QUERIES], float("-inf"), tl.float32)
    mass_M = tl.zeros([QUERIES], tl.float32)
    mixed_MD = tl.zeros([QUERIES, PADDED_DIM], tl.float32)
    last_token = tl.minimum((tile * QUERIES + QUERIES - 1) // GROUPS, num_tokens - 1)
    # A long row gives its company tiles that have no queries: these read no key.
    has_queries = tile * QUERIES < num_tokens * GROUPS
    num_read = tl.where(has_queries, num_keys - num_tokens + last_token + 1, 0)
    for first_key in range(0, num_read, KEYS):
        key_S = first_key + tl.arange(0, KEYS)
        is_key_S = key_S < num_keys
        block_S = tl.load(
            blocks + row * table_width + key_S // BLOCK_SIZE, mask=is_key_S, other=0
        ).to(tl.int64)
        place_S = (block_S * BLOCK_SIZE + key_S % BLOCK_SIZE) * KEY_HEADS + key_head
        tile_SD = place_S[:, None] * HEAD_DIM + number_D[None, :]
        is_there_SD = is_key_S[:, None] & is_head_D[None, :]
        k_SD = tl.load(keys + tile_SD, mask=is_there_SD, other=0.0)
        v_SD = tl.load(values + tile_SD, mask=is_there_SD, other=0.0)
        score_MS = tl.dot(q_MD, tl.trans(k_SD), input_precision="ieee") * scaling
        is_seen_MS = key_S[None, :] <= place_M[:, None]
        score_MS = tl.where(is_seen_MS, score_MS, float("-inf"))
        now_M = tl.maximum(greatest_M, tl.max(score_MS, 1))
        weight_MS = tl.exp(score_MS - now_M[:, None])
        kept_M = tl.exp(greatest_M - now_M)
        mass_M = mass_M * kept_M + tl.sum(weight_MS, 1)
        product_MD = tl.dot(weight_MS.to(v_SD.dtype), v_SD, input_precision="ieee")
        mixed_MD = mixed_MD * kept_M[:, None] + product_MD
        greatest_M = now_M
    tl.store(output + query_MD, mixed_MD / mass_M[:, None], mask=is_query_MD)


class TritonAttention:
    """Implements BlockAttention."""

    compiler_version: str = triton.__version__
    """Another one may order sums in another way: it is part of the numerics fingerprint."""

    def __call__(
        self, query_THD: Tensor, keys: Tensor, values: Tensor, rows: BlockRows, scaling: float
    ) -> Tensor:
        query_THD = query_THD.contiguous()
        num_heads, head_dim = query_THD.shape[1:]
        block_size, num_key_heads = keys.shape[1:3]
        groups = num_heads // num_key_heads
        output_THD = torch.empty_like(query_THD)
        grid = (
            len(rows.key_counts),
            num_key_heads,
            triton.cdiv(rows.max_queries * groups, _QUERIES),
        )
        # Triton launches on the current GPU, which need not be theirs.
        with torch.cuda.device_of(query_THD):  # type: ignore[no-untyped-call]
            _attend[grid](
                output_THD,
                query_THD,
                keys,
                values,
                rows.query_ends,
                rows.key_counts,
                rows.blocks,
                scaling,
                rows.blocks.shape[1],
                GROUPS=groups,
                KEY_HEADS=num_key_heads,
                HEAD_DIM=head_dim,
                PADDED_DIM=max(triton.next_power_of_2(head_dim), _LEAST_DIM),
                BLOCK_SIZE=block_size,
                QUERIES=_QUERIES,
                KEYS=_KEYS,
                num_warps=_NUM_WARPS,
            )
        return output_THD
