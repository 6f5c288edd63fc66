"""Builds kernels/ with the machine's C compiler and calls it: a pass of a decoder on a CPU.

The library is built once per machine and kept in the user's cache. Without a compiler PyTorch does
the same work. Shape legend as in kernels.c.
"""

from __future__ import annotations

import ctypes
import logging
import subprocess
from collections.abc import Sequence
from ctypes import POINTER, byref, c_float, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specdec_core.kernels.build import FLAGS, build_library, reason_of

_SOURCE = Path(__file__).parent / "csrc" / "kernels.c"
_STEP = 16
"""Widths are multiples of this number of values in a vector."""
_MAX_HEAD_DIM = 256

_logger = logging.getLogger(__name__)


class _Attention(ctypes.Structure):
    """`AttentionCall` of kernels.c."""

    _fields_ = (
        *((name, c_void_p) for name in ("query", "new_keys", "new_values")),
        *((name, c_int64) for name in ("query_stride", "key_stride", "value_stride")),
        *((name, c_void_p) for name in ("keys", "values", "write_index", "out")),
        *((name, c_void_p) for name in ("query_ends", "key_counts", "tables")),
        *((name, c_int64) for name in ("num_tokens", "num_pieces", "table_width", "block_size")),
        *((name, c_int64) for name in ("heads", "key_heads", "size", "num_threads")),
        ("scaling", c_float),
    )


class BlockRows(NamedTuple):
    """Places of the queries of every row, and the keys that they see. int32."""

    query_ends: Tensor
    """[P + 1] tokens before each row, then all of them."""
    key_counts: Tensor
    """[P] keys that the last query of a row sees."""
    blocks: Tensor
    """[P, W] blocks of every row."""
    max_queries: int
    max_keys: int


class NativeKernels:
    """Kernels of kernels.c, loaded in this process. Tensors are bfloat16 on the CPU, with a dense
    last axis."""

    def __init__(self, library: ctypes.CDLL, identity: str) -> None:
        self.identity = identity
        """Hash of source, compiler and machine. Equal identities mean equal bits."""
        self._add_norm = _declare(library.specdec_add_norm, 4 * "p" + 2 * "i" + "fi")
        self._gate = _declare(library.specdec_gate, 2 * "p" + 2 * "i")
        self._rotate = _declare(library.specdec_turn, 5 * "p" + 5 * "i" + "fi")
        self._linear = _declare(library.specdec_linear, 4 * "p" + 4 * "i")
        self.run_pass = _declare(library.specdec_run_pass, "pp")
        """Function of the addresses of `Model` and `Pass`. models/llama.py has the
        structures."""
        self.settle = _declare(library.specdec_settle, "")
        """Function to call before the memory of a pass is freed. Returns when no thread reads the
        memory of any pass."""
        self._attend = library.specdec_attend
        self._attend.argtypes = (POINTER(_Attention),)
        self._attend.restype = None

    def add_norm(
        self, x_TE: Tensor, update_TE: Tensor | None, weight_E: Tensor, epsilon: float
    ) -> Tensor:
        """Add `update_TE` to `x_TE` in place; return the RMS norm of the sum."""
        assert x_TE.is_contiguous()
        assert update_TE is None or update_TE.is_contiguous()
        out_TE = torch.empty_like(x_TE)
        update = None if update_TE is None else update_TE.data_ptr()
        pointers = x_TE.data_ptr(), update, weight_E.data_ptr(), out_TE.data_ptr()
        self._add_norm(*pointers, *x_TE.shape, epsilon, torch.get_num_threads())
        return out_TE

    def gate(self, gate_up: Tensor) -> Tensor:
        """Return silu(gate) * up of rows [gate, up]: [T, 2 I] gives [T, I]."""
        assert gate_up.is_contiguous()
        num_tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
        out_TI = gate_up.new_empty(num_tokens, width)
        self._gate(gate_up.data_ptr(), out_TI.data_ptr(), num_tokens, width)
        return out_TI

    def rotate(
        self,
        heads_TXD: Tensor,
        num_query_heads: int,
        num_key_heads: int,
        cos_TD: Tensor,
        sin_TD: Tensor,
        head_norms: tuple[Tensor, Tensor, float] | None,
    ) -> None:
        """Apply the norms (weights of both and epsilon), then rotate query and key heads in place.
        They are the first of every token's X heads."""
        assert all(some.is_contiguous() for some in (heads_TXD, cos_TD, sin_TD))
        num_tokens, num_heads, size = heads_TXD.shape
        query_norm, key_norm, epsilon = head_norms or (None, None, 0.0)
        norms = (None if norm is None else norm.data_ptr() for norm in (query_norm, key_norm))
        pointers = heads_TXD.data_ptr(), cos_TD.data_ptr(), sin_TD.data_ptr(), *norms
        stride = num_heads * size
        sizes = num_tokens, stride, num_query_heads, num_key_heads, size
        self._rotate(*pointers, *sizes, epsilon, torch.get_num_threads())

    def linear(
        self, rows_MI: Tensor, packed: Tensor, bias_O: Tensor | None, num_outputs: int
    ) -> Tensor:
        """Return rows times weights, [M, O]. layers/cpu_linear.py packs the weights."""
        assert rows_MI.is_contiguous()
        out_MO = rows_MI.new_empty(rows_MI.shape[0], num_outputs)
        bias = None if bias_O is None else bias_O.data_ptr()
        pointers = rows_MI.data_ptr(), packed.data_ptr(), bias, out_MO.data_ptr()
        self._linear(*pointers, *rows_MI.shape, num_outputs, torch.get_num_threads())
        return out_MO

    def attend(
        self,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        pools: tuple[Tensor, Tensor],
        write_index: Tensor,
        rows: BlockRows,
        block_size: int,
        scaling: float,
    ) -> Tensor:
        """Cache the new keys and values, then attend over the pools; return [T, H, D]."""
        num_tokens, num_heads, size = query_THD.shape
        out_THD = torch.empty(num_tokens, num_heads, size, dtype=query_THD.dtype)
        assert all(_has_dense_heads(some) for some in (query_THD, key_TKD, value_TKD))
        arguments = _Attention(
            query=query_THD.data_ptr(),
            new_keys=key_TKD.data_ptr(),
            new_values=value_TKD.data_ptr(),
            query_stride=query_THD.stride(0),
            key_stride=key_TKD.stride(0),
            value_stride=value_TKD.stride(0),
            keys=pools[0].data_ptr(),
            values=pools[1].data_ptr(),
            write_index=write_index.data_ptr(),
            out=out_THD.data_ptr(),
            query_ends=rows.query_ends.data_ptr(),
            key_counts=rows.key_counts.data_ptr(),
            tables=rows.blocks.data_ptr(),
            num_tokens=num_tokens,
            num_pieces=rows.blocks.shape[0],
            table_width=rows.blocks.shape[1],
            block_size=block_size,
            heads=num_heads,
            key_heads=key_TKD.shape[1],
            size=size,
            num_threads=torch.get_num_threads(),
            scaling=scaling,
        )
        self._attend(byref(arguments))
        return out_THD


def suits(hidden_size: int, intermediate_size: int, head_dim: int) -> bool:
    """Return True if the kernels can compute a model of these widths."""
    are_whole = hidden_size % _STEP == 0 and intermediate_size % _STEP == 0
    return are_whole and head_dim % (2 * _STEP) == 0 and head_dim <= _MAX_HEAD_DIM


@lru_cache(maxsize=1)
def load_kernels() -> NativeKernels | None:
    """Return the kernels of this machine. If they cannot be built, log a warning and return
    None."""
    try:
        return build_kernels()
    except (OSError, subprocess.SubprocessError) as error:
        _logger.warning(
            "CPU kernels are unavailable; using slower PyTorch operations: %s. The "
            "kernels need a C compiler. Install cc, or set CC to your compiler",
            reason_of(error),
        )
    return None


def build_kernels(flags: Sequence[str] = FLAGS) -> NativeKernels:
    """Build the kernels, unless this machine has a build. Raises OSError or SubprocessError."""
    library, identity = build_library(_SOURCE, flags)
    if library.specdec_prepare() != 0:
        _logger.warning(
            "the operating system denied AMX to this process; using slower kernels without AMX"
        )
        library, identity = build_library(_SOURCE, (*flags, "-mno-amx-bf16"))
    return NativeKernels(library, identity)


def _declare(function: Any, kinds: str) -> Any:
    types: dict[str, Any] = {"p": c_void_p, "i": c_int64, "f": c_float}
    function.argtypes = [types[kind] for kind in kinds]
    function.restype = None
    return function


def _has_dense_heads(heads_TXD: Tensor) -> bool:
    return heads_TXD.stride(2) == 1 and heads_TXD.stride(1) == heads_TXD.shape[2]
