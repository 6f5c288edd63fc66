"""Which attention over a block table this machine has: asked once, at load.

PyTorch takes a block table only with a kernel library that brings one (FlashAttention 3 on Hopper),
and says so when it is called; then there is a kernel of ours. What does not answer like the
textbook is not used: without any, blocks are gathered for scaled_dot_product_attention. Shape
legend as in block_attention.py; Q queries of a row, S its keys.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from specdec_core.kv.paged import KVShape
from specdec_core.models.ragged_attention import attend_rows
from specdec_core.models.static_shapes.block_attention import (
    BlockAttention,
    BlockRows,
    VarlenAttention,
)

_logger = logging.getLogger(__name__)

_NEEDED_ARGUMENTS = frozenset({"block_table", "seqused_k", "num_splits", "enable_gqa", "scale"})
_FLASH_3 = "flash_attn_interface"
"""Module of the FlashAttention 3 library."""
_TOLERANCE = 2e-2
_PROBED = ((1, 0), (4, 3), (2, 17), (1, 40))
"""(queries, place of the first one) of the rows of a probe."""


def find_block_attention(kv: KVShape, num_heads: int, block_size: int) -> BlockAttention | None:
    """PyTorch's or ours, where one is right for this device, type and size of blocks."""
    if kv.device.type != "cuda":
        return None
    kinds = {"varlen_attn": _varlen_attention, "Triton": _triton_attention}
    return first_right(kinds, kv, num_heads, block_size)


def first_right(
    kinds: Mapping[str, Callable[[], BlockAttention | None]],
    kv: KVShape,
    num_heads: int,
    block_size: int,
) -> BlockAttention | None:
    """Whatever does not load, does not run or answers wrongly is passed over; the log says why."""
    for name, make in kinds.items():
        try:
            attention = make()
            if attention is not None and is_right(attention, kv, num_heads, block_size):
                _logger.info("attention reads the blocks of the cache in place: %s", name)
                return attention
            reason = "it is not there" if attention is None else "its answers are wrong"
        except Exception as error:  # of whatever library or compiler: there is another way
            reason = str(error)
        _logger.info("no attention over a block table by %s: %s", name, reason)
    return None


def _triton_attention() -> BlockAttention | None:
    """Of our own; Triton comes with PyTorch's builds for CUDA."""
    if importlib.util.find_spec("triton") is None:
        return None
    from specdec_core.models.static_shapes.triton_attention import TritonAttention

    return TritonAttention()


def _varlen_attention() -> BlockAttention | None:
    function = _varlen_function()
    return None if function is None else VarlenAttention(function)


def _varlen_function() -> Callable[..., Any] | None:
    """With every argument that is needed: those of a block table came one by one, since 2.10."""
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
    """Whether a pass over shuffled blocks answers like scaled_dot_product_attention."""
    generator = torch.Generator().manual_seed(0)
    width = -(-max(count + start for count, start in _PROBED) // block_size)
    num_blocks = width * len(_PROBED)
    shape = (num_blocks, block_size, kv.num_kv_heads, kv.head_dim)
    keys, values = (
        torch.randn(shape, generator=generator).to(kv.device, kv.dtype) for _ in range(2)
    )
    counts = [count for count, _ in _PROBED]
    query_shape = (sum(counts), num_heads, kv.head_dim)
    query_THD = torch.randn(query_shape, generator=generator).to(kv.device, kv.dtype)
    blocks_PW = torch.randperm(num_blocks, generator=generator).view(-1, width)
    rows = BlockRows(
        query_ends=_int32([0, *accumulate(counts)], kv),
        key_counts=_int32([count + start for count, start in _PROBED], kv),
        blocks=blocks_PW.int().to(kv.device),
        max_queries=max(counts),
        max_keys=width * block_size,
    )
    scaling = kv.head_dim**-0.5
    found_THD = attention(query_THD, keys, values, rows, scaling)
    blocks = [row.to(kv.device) for row in blocks_PW]
    expected_THD = torch.cat(
        [
            _textbook(query_QHD, keys[row].flatten(0, 1), values[row].flatten(0, 1), start, scaling)
            for query_QHD, row, (_, start) in zip(
                torch.split(query_THD, counts), blocks, _PROBED, strict=True
            )
        ]
    )
    return torch.allclose(found_THD, expected_THD, atol=_TOLERANCE, rtol=_TOLERANCE)


def _textbook(
    query_QHD: Tensor, key_SKD: Tensor, value_SKD: Tensor, start: int, scaling: float
) -> Tensor:
    """Attention of one row whose first query stands at `start`."""
    num_queries, num_heads, _ = query_QHD.shape
    num_keys, num_kv_heads, _ = key_SKD.shape
    places_Q1 = torch.arange(start, start + num_queries, device=query_QHD.device).unsqueeze(1)
    is_hidden_QS = torch.arange(num_keys, device=query_QHD.device) > places_Q1
    mask_QS = torch.zeros_like(is_hidden_QS, dtype=query_QHD.dtype)
    mask_QS.masked_fill_(is_hidden_QS, float("-inf"))
    mask = mask_QS.repeat(num_heads // num_kv_heads, 1)[None, None]
    key, value = (some.transpose(0, 1).unsqueeze(0) for some in (key_SKD, value_SKD))
    return attend_rows(query_QHD, key, value, mask, scaling)


def _int32(values: Sequence[int], kv: KVShape) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=kv.device)
