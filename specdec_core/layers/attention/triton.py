"""Attention that reads the blocks of the cache in place: our own kernels, in Triton.

PyTorch's builds for CUDA include Triton. A row's keys are in parts of one size, counted from its
first key, and a part is in tiles of one size. The results of a query's parts are merged in their
order.

One program computes all parts of some queries of one row that share a key head. If that would leave
most of the GPU idle, one program computes one part, and a second kernel merges. Both ways do the
same arithmetic in the same order. A query's bits depend on its own keys alone, never on other rows.
Shape legend as in attention/paged.py; M queries of a program, S keys of a tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from specdec_core.kernels.ops import BlockRows
from specdec_core.layers.attention.paged import BlockAttention
from specdec_core.layers.triton_launch import launch_options, wait_for_inputs

_QUERIES = 32
"""Queries of a program. 4 query heads per key head, times 5 tokens of a verification, are 20."""
_KEYS = 64
_PART = 256
"""Keys of a part: one or more tiles."""
_NUM_WARPS = 4
_NUM_STAGES = 5
"""Pipeline stages. With this number, the next tile is read while one is computed. With fewer, only
its blocks are read."""
_LEAST_DIM = 16
"""Minimum dimension of a tile. tl.dot takes no smaller one."""
_MERGED_HEADS = 4
"""Maximum heads of a program that merges parts."""
_MAX_PARTS_BYTES = 64 * 2**20
"""Maximum bytes that parts leave in memory until they are merged. Above it, rows are not split."""
_NO_KEY = tl.constexpr(-1e30)
"""Score of a query that has seen no key. It is finite, so that differences of two are numbers."""


@triton.jit
def _merge(greatest_M, mass_M, mixed_MD, other_M, other_mass_M, other_mixed_MD):  # type: ignore[no-untyped-def]
    """Merge the results of two parts, as if their keys had come together. `fma` leaves the compiler
    no choice of where to round, so the bits are the same wherever this is called."""
    now_M = tl.maximum(greatest_M, other_M)
    kept_M, added_M = tl.exp(greatest_M - now_M), tl.exp(other_M - now_M)
    mass_M = tl.fma(mass_M, kept_M, other_mass_M * added_M)
    kept_MD = tl.broadcast_to(kept_M[:, None], mixed_MD.shape)
    mixed_MD = tl.fma(mixed_MD, kept_MD, other_mixed_MD * added_M[:, None])
    return now_M, mass_M, mixed_MD


@triton.jit(do_not_specialize=["table_width", "num_parts"])  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    output,
    parts_greatest,
    parts_mass,
    parts_mixed,
    queries,
    query_stride,
    keys,
    values,
    query_ends,
    key_counts,
    blocks,
    scaling,
    table_width,
    num_parts,
    GROUPS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    PART: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    STARTS_EARLY: tl.constexpr,
):
    wait_for_inputs(STARTS_EARLY)
    row, key_head = tl.program_id(0), tl.program_id(1)
    tile, part = tl.program_id(2) // num_parts, tl.program_id(2) % num_parts
    first_token = tl.load(query_ends + row)
    num_tokens = tl.load(query_ends + row + 1) - first_token
    num_keys = tl.load(key_counts + row)
    folded_M = tile * QUERIES + tl.arange(0, QUERIES)
    token_M, group_M = folded_M // GROUPS, folded_M % GROUPS
    is_there_M = token_M < num_tokens
    position_M = num_keys - num_tokens + token_M
    # Tiles have sizes that are powers of two. After the head they are zeros, which change no sum.
    number_D = tl.arange(0, PADDED_DIM)
    is_head_D = number_D < HEAD_DIM
    is_query_MD = is_there_M[:, None] & is_head_D[None, :]
    own_token_M = (first_token + token_M).to(tl.int64)
    head_M = key_head * GROUPS + group_M
    query_M = own_token_M * query_stride + head_M * HEAD_DIM
    q_MD = tl.load(queries + query_M[:, None] + number_D[None, :], mask=is_query_MD, other=0.0)
    last_token = tl.minimum((tile * QUERIES + QUERIES - 1) // GROUPS, num_tokens - 1)
    # Because of a long row, shorter rows have tiles without queries. These read no key.
    has_queries = tile * QUERIES < num_tokens * GROUPS
    end = tl.where(has_queries, num_keys - num_tokens + last_token + 1, 0)
    begin = part * PART
    if IS_SPLIT:
        end = tl.minimum(end, begin + PART)
    all_greatest_M = tl.full([QUERIES], _NO_KEY, tl.float32)
    all_mass_M = tl.zeros([QUERIES], tl.float32)
    all_mixed_MD = tl.zeros([QUERIES, PADDED_DIM], tl.float32)
    greatest_M, mass_M, mixed_MD = all_greatest_M, all_mass_M, all_mixed_MD
    for first_key in range(begin, end, KEYS):
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
        is_seen_MS = key_S[None, :] <= position_M[:, None]
        score_MS = tl.where(is_seen_MS, score_MS, float("-inf"))
        now_M = tl.maximum(greatest_M, tl.max(score_MS, 1))
        weight_MS = tl.exp(score_MS - now_M[:, None])
        kept_M = tl.exp(greatest_M - now_M)
        mass_M = mass_M * kept_M + tl.sum(weight_MS, 1)
        product_MD = tl.dot(weight_MS.to(v_SD.dtype), v_SD, input_precision="ieee")
        mixed_MD = mixed_MD * kept_M[:, None] + product_MD
        greatest_M = now_M
        if (first_key + KEYS) % PART == 0:
            all_greatest_M, all_mass_M, all_mixed_MD = _merge(
                all_greatest_M, all_mass_M, all_mixed_MD, greatest_M, mass_M, mixed_MD
            )
            greatest_M = tl.full([QUERIES], _NO_KEY, tl.float32)
            mass_M = tl.zeros([QUERIES], tl.float32)
            mixed_MD = tl.zeros([QUERIES, PADDED_DIM], tl.float32)
    greatest_M, mass_M, mixed_MD = _merge(
        all_greatest_M, all_mass_M, all_mixed_MD, greatest_M, mass_M, mixed_MD
    )
    own_head_M = own_token_M * (KEY_HEADS * GROUPS) + head_M
    if IS_SPLIT:
        if begin < end:
            part_M = own_head_M * num_parts + part
            part_MD = part_M[:, None] * HEAD_DIM + number_D[None, :]
            tl.store(parts_greatest + part_M, greatest_M, mask=is_there_M)
            tl.store(parts_mass + part_M, mass_M, mask=is_there_M)
            tl.store(parts_mixed + part_MD, mixed_MD, mask=is_query_MD)
    else:
        output_MD = own_head_M[:, None] * HEAD_DIM + number_D[None, :]
        tl.store(output + output_MD, mixed_MD / mass_M[:, None], mask=is_query_MD)


@triton.jit(do_not_specialize=["num_parts"])  # type: ignore[untyped-decorator]
def _merge_parts(  # type: ignore[no-untyped-def]
    output,
    parts_greatest,
    parts_mass,
    parts_mixed,
    query_ends,
    key_counts,
    num_parts,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    MERGED: tl.constexpr,
    PART: tl.constexpr,
    STARTS_EARLY: tl.constexpr,
):
    """Merge the parts. A program takes M heads of a token."""
    wait_for_inputs(STARTS_EARLY)
    row, token = tl.program_id(0), tl.program_id(1)
    first_token = tl.load(query_ends + row)
    num_tokens = tl.load(query_ends + row + 1) - first_token
    position = tl.load(key_counts + row) - num_tokens + token
    num_read = tl.where(token < num_tokens, position // PART + 1, 0)
    head_M = tl.program_id(2) * MERGED + tl.arange(0, MERGED)
    is_there_M = (head_M < HEADS) & (num_read > 0)
    number_D = tl.arange(0, PADDED_DIM)
    is_there_MD = is_there_M[:, None] & (number_D < HEAD_DIM)[None, :]
    own_head_M = (first_token + token).to(tl.int64) * HEADS + head_M
    greatest_M = tl.full([MERGED], _NO_KEY, tl.float32)
    mass_M = tl.zeros([MERGED], tl.float32)
    mixed_MD = tl.zeros([MERGED, PADDED_DIM], tl.float32)
    for part in range(0, num_read):
        part_M = own_head_M * num_parts + part
        part_MD = part_M[:, None] * HEAD_DIM + number_D[None, :]
        greatest_M, mass_M, mixed_MD = _merge(
            greatest_M,
            mass_M,
            mixed_MD,
            tl.load(parts_greatest + part_M, mask=is_there_M, other=_NO_KEY),
            tl.load(parts_mass + part_M, mask=is_there_M, other=0.0),
            tl.load(parts_mixed + part_MD, mask=is_there_MD, other=0.0),
        )
    output_MD = own_head_M[:, None] * HEAD_DIM + number_D[None, :]
    tl.store(output + output_MD, mixed_MD / mass_M[:, None], mask=is_there_MD)


@triton.jit  # type: ignore[untyped-decorator]
def _write(  # type: ignore[no-untyped-def]
    keys,
    values,
    write_index,
    new_keys,
    new_values,
    key_stride,
    value_stride,
    WIDTH: tl.constexpr,
    PADDED_WIDTH: tl.constexpr,
    STARTS_EARLY: tl.constexpr,
):
    """Write keys and values. A program takes a token."""
    wait_for_inputs(STARTS_EARLY)
    token = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, PADDED_WIDTH)
    is_there = number < WIDTH
    offset = tl.load(write_index + token).to(tl.int64) * WIDTH + number
    key = tl.load(new_keys + token * key_stride + number, mask=is_there)
    value = tl.load(new_values + token * value_stride + number, mask=is_there)
    tl.store(keys + offset, key, mask=is_there)
    tl.store(values + offset, value, mask=is_there)


class TritonAttention(BlockAttention):
    """Attention in Triton. Keys are always in parts, so splitting rows changes no bit."""

    compiler_version: str = triton.__version__
    """Version of Triton. Another version may order sums in another way, so this is part of the
    numerics fingerprint."""

    def __init__(self, num_processors: int, *, starts_early: bool = False) -> None:
        """Take the GPU's number of multiprocessors, and whether kernels may start early on it."""
        self._num_processors = num_processors
        self._launch = launch_options(starts_early)

    def __call__(
        self, query_THD: Tensor, keys: Tensor, values: Tensor, rows: BlockRows, scaling: float
    ) -> Tensor:
        """See BlockAttention."""
        query_THD = _with_whole_heads(query_THD)
        num_tokens, num_heads, head_dim = query_THD.shape
        block_size, num_key_heads = keys.shape[1:3]
        groups = num_heads // num_key_heads
        tiles = triton.cdiv(rows.max_queries * groups, _QUERIES)
        num_programs = len(rows.key_counts) * num_key_heads * tiles
        num_parts = self._num_parts(query_THD, rows, num_programs)
        output_THD = query_THD.new_empty(num_tokens, num_heads, head_dim)
        parts = _parts(query_THD, num_parts) if num_parts > 1 else (output_THD,) * 3
        sizes = {"HEAD_DIM": head_dim, "PADDED_DIM": _padded(head_dim), "PART": _PART}
        sizes |= self._launch
        # Triton launches on the current GPU, which may not be the tensors' GPU.
        with torch.cuda.device_of(query_THD):  # type: ignore[no-untyped-call]
            _attend[(len(rows.key_counts), num_key_heads, tiles * num_parts)](
                output_THD,
                *parts,
                query_THD,
                query_THD.stride(0),
                keys,
                values,
                rows.query_ends,
                rows.key_counts,
                rows.blocks,
                scaling,
                rows.blocks.shape[1],
                num_parts,
                GROUPS=groups,
                KEY_HEADS=num_key_heads,
                BLOCK_SIZE=block_size,
                QUERIES=_QUERIES,
                KEYS=_KEYS,
                IS_SPLIT=num_parts > 1,
                num_warps=_NUM_WARPS,
                num_stages=_NUM_STAGES,
                **sizes,
            )
            if num_parts > 1:
                merged = min(_MERGED_HEADS, triton.next_power_of_2(num_heads))
                _merge_parts[
                    (len(rows.key_counts), rows.max_queries, triton.cdiv(num_heads, merged))
                ](
                    output_THD,
                    *parts,
                    rows.query_ends,
                    rows.key_counts,
                    num_parts,
                    HEADS=num_heads,
                    MERGED=merged,
                    **sizes,
                )
        return output_THD

    def write(
        self, keys: Tensor, values: Tensor, index_T: Tensor, key_TKD: Tensor, value_TKD: Tensor
    ) -> None:
        """See BlockAttention. One launch writes both."""
        key_TKD, value_TKD = _with_whole_heads(key_TKD), _with_whole_heads(value_TKD)
        width = keys.shape[1] * keys.shape[2]
        with torch.cuda.device_of(keys):  # type: ignore[no-untyped-call]
            _write[(len(index_T),)](
                keys,
                values,
                index_T,
                key_TKD,
                value_TKD,
                key_TKD.stride(0),
                value_TKD.stride(0),
                WIDTH=width,
                PADDED_WIDTH=triton.next_power_of_2(width),
                **self._launch,
            )

    def _num_parts(self, query_THD: Tensor, rows: BlockRows, num_programs: int) -> int:
        """Return the number of parts, or 1 if one program reads all keys of a query. With a program
        for every second processor, a second kernel costs more than it saves."""
        num_parts = -(-rows.max_keys // _PART)
        num_bytes = num_parts * query_THD.numel() * torch.float32.itemsize
        is_split = 2 * num_programs <= self._num_processors and num_bytes <= _MAX_PARTS_BYTES
        return num_parts if is_split else 1


def _parts(query_THD: Tensor, num_parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return buffers for the greatest score, mass and mixed values of every part of a query."""
    num_tokens, num_heads, head_dim = query_THD.shape
    sizes = [(), (), (head_dim,)]
    greatest, mass, mixed = (
        query_THD.new_empty(num_tokens, num_heads, num_parts, *size, dtype=torch.float32)
        for size in sizes
    )
    return greatest, mass, mixed


def _with_whole_heads(some_TXD: Tensor) -> Tensor:
    """Return the tensor with each token's heads contiguous. Tokens may have gaps, because one
    product gives queries, keys and values side by side."""
    is_so = some_TXD.stride()[1:] == (some_TXD.shape[2], 1)
    return some_TXD if is_so else some_TXD.contiguous()


def _padded(head_dim: int) -> int:
    size: int = triton.next_power_of_2(head_dim)
    return max(size, _LEAST_DIM)
