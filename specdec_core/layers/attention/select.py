"""Selects attention over a block table for this machine, once, at load.

PyTorch takes a block table only with a kernel library that supports one (FlashAttention 3 on
Hopper), and reports this only when called. The second choice is our own Triton kernel. A kernel
whose results differ from the textbook is not used. Without any, blocks are gathered for
scaled_dot_product_attention. Shape legend as in attention/paged.py; M tokens of the pools, Q
queries of a row, S its keys.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from specdec_core.kernels.ops import BlockRows
from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention.paged import BlockAttention, VarlenAttention

_logger = logging.getLogger(__name__)

_NEEDED_ARGUMENTS = frozenset({"block_table", "seqused_k", "num_splits", "enable_gqa", "scale"})
_FLASH_3 = "flash_attn_interface"
"""Module of the FlashAttention 3 library."""
_TOLERANCE = 2e-2
_PROBED = ((1, 0), (4, 3), (2, 17), (1, 40), (5, 200), (33, 560))
"""(queries, place of the first one) of the rows of a probe. The longest rows need several tiles of
keys, and of queries, in any kernel."""
_SCORE_RANGE = 12.0
"""Rise or fall of the scores from a long row's first key to its last. For some heads the greatest
score is in the first tile. For others each new tile has a greater one."""


def find_block_attention(kv: KVShape, num_heads: int, block_size: int) -> BlockAttention | None:
    """Return PyTorch's or our attention, if one is correct for this device, type and block size."""
    if kv.device.type != "cuda":
        return None
    kinds: dict[str, Callable[[], BlockAttention | None]] = {
        "varlen_attn": _varlen_attention,
        "Triton": partial(_triton_attention, kv.device),
    }
    return first_right(kinds, kv, num_heads, block_size)


def first_right(
    kinds: Mapping[str, Callable[[], BlockAttention | None]],
    kv: KVShape,
    num_heads: int,
    block_size: int,
) -> BlockAttention | None:
    """Return the first attention that loads, runs and is correct. The log has the reasons for the
    others."""
    for name, make in kinds.items():
        try:
            attention = make()
            if attention is not None and is_right(attention, kv, num_heads, block_size):
                _logger.info("attention reads the KV cache's blocks in place: %s", name)
                return attention
            reason = "it is not there" if attention is None else "its answers are wrong"
        except Exception as error:  # of any library or compiler: there is another way
            reason = str(error)
        _logger.info("no paged attention by %s: %s", name, reason)
    _logger.warning(
        "no attention backend reads the KV cache's blocks in place (%d heads of size %d, "
        "%s). Each pass copies the keys and values of its rows first and reads the copy, "
        "which moves three times their bytes. With long or many rows, that exceeds the "
        "bytes of the weights. Log level INFO shows the reasons",
        num_heads,
        kv.head_dim,
        kv.dtype,
    )
    return None


def _triton_attention(device: torch.device) -> BlockAttention | None:
    """Return our own attention. Triton comes with PyTorch's builds for CUDA."""
    if importlib.util.find_spec("triton") is None:
        return None
    from specdec_core.layers.attention.triton import TritonAttention
    from specdec_core.layers.triton_launch import may_start_early

    num_processors = torch.cuda.get_device_properties(device).multi_processor_count
    return TritonAttention(num_processors, starts_early=may_start_early(device))


def _varlen_attention() -> BlockAttention | None:
    function = _varlen_function()
    return None if function is None else VarlenAttention(function)


def _varlen_function() -> Callable[..., Any] | None:
    """Return varlen_attn if it has every needed argument. Those of a block table came one by one,
    since 2.10."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    if not inspect.signature(varlen_attn).parameters.keys() >= _NEEDED_ARGUMENTS:
        return None
    if importlib.util.find_spec(_FLASH_3) is not None:
        torch.nn.attention.activate_flash_attention_impl("FA3")
    return varlen_attn


@torch.inference_mode()
def is_right(attention: BlockAttention, kv: KVShape, num_heads: int, block_size: int) -> bool:
    """Return True if a pass over shuffled blocks gives the textbook's results."""
    generator = torch.Generator().manual_seed(0)
    counts = [count for count, _ in _PROBED]
    ends = [count + start for count, start in _PROBED]
    width = -(-max(ends) // block_size)
    blocks = torch.randperm(width * len(_PROBED), generator=generator)
    blocks_PW = blocks.view(-1, width)
    first_positions = blocks.argsort() % width * block_size
    positions_M = (first_positions.unsqueeze(1) + torch.arange(block_size)).flatten()
    query_THD, key_MKD, value_MKD = _made_up(kv, num_heads, sum(counts), positions_M, generator)
    rows = BlockRows(
        query_ends=_int32([0, *accumulate(counts)], kv),
        key_counts=_int32(ends, kv),
        blocks=blocks_PW.int().to(kv.device),
        max_queries=max(counts),
        max_keys=width * block_size,
    )
    scaling = kv.head_dim**-0.5
    keys, values = (some.view(-1, block_size, *some.shape[1:]) for some in (key_MKD, value_MKD))
    actual_THD = attention(query_THD, keys, values, rows, scaling)
    expected_THD = torch.cat(
        [
            _textbook(query_QHD, keys[row].flatten(0, 1), values[row].flatten(0, 1), start, scaling)
            for query_QHD, row, (_, start) in zip(
                torch.split(query_THD, counts), blocks_PW.to(kv.device), _PROBED, strict=True
            )
        ]
    )
    return torch.allclose(actual_THD.float(), expected_THD, atol=_TOLERANCE, rtol=_TOLERANCE)


def _made_up(
    kv: KVShape, num_heads: int, num_queries: int, positions_M: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values for keys at `positions_M` of their rows. The scores of every
    second head rise with the place, and those of the others fall."""
    key_MKD, value_MKD = (
        torch.randn(len(positions_M), kv.num_kv_heads, kv.head_dim, generator=generator)
        for _ in range(2)
    )
    query_THD = torch.randn(num_queries, num_heads, kv.head_dim, generator=generator)
    slope_H = torch.where(torch.arange(num_heads) % 2 == 0, 1.0, -1.0)
    query_THD[:, :, 0] = slope_H * kv.head_dim**0.5
    key_MKD[:, :, 0] = (positions_M / positions_M.max() * _SCORE_RANGE).unsqueeze(1)
    query_THD, key_MKD, value_MKD = (
        some.to(kv.device, kv.dtype) for some in (query_THD, key_MKD, value_MKD)
    )
    return query_THD, key_MKD, value_MKD


def _textbook(
    query_QHD: Tensor, key_SKD: Tensor, value_SKD: Tensor, start: int, scaling: float
) -> Tensor:
    """Return the attention of one row whose first query is at `start`, in float32, over all keys in
    one step."""
    num_queries, num_heads, _ = query_QHD.shape
    num_keys, num_kv_heads, _ = key_SKD.shape
    groups = num_heads // num_kv_heads
    key_SHD, value_SHD = (
        some.float().repeat_interleave(groups, dim=1) for some in (key_SKD, value_SKD)
    )
    score_HQS = torch.einsum("qhd,shd->hqs", query_QHD.float(), key_SHD) * scaling
    position_Q1 = torch.arange(start, start + num_queries, device=query_QHD.device).unsqueeze(1)
    is_hidden_QS = torch.arange(num_keys, device=query_QHD.device) > position_Q1
    weight_HQS = score_HQS.masked_fill(is_hidden_QS, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqs,shd->qhd", weight_HQS, value_SHD)


def _int32(values: Sequence[int], kv: KVShape) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=kv.device)
