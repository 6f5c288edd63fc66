"""Operations between the linears of a layer on a GPU: our own Triton kernels, one for each.

PyTorch takes three operations for a sum and its norm, sixteen for the rotation of the heads and two
for the gate. A GPU takes two to three microseconds for each of them. These kernels round every
number where transformers does. A program handles a row, or an independent part of a row, so rows
never influence each other. Shape legend as in layers/elementwise.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from specdec_core.layers.elementwise import Heads, RMSNorm, Rotation
from specdec_core.layers.triton_launch import launch_options, wait_for_inputs

_TURNED_HEADS = 4
"""Heads that one program rotates."""
_GATED = 1024
"""Numbers that one program gates."""


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm(  # type: ignore[no-untyped-def]
    x,
    update,
    weight,
    output,
    epsilon,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    ADDS: tl.constexpr,
    STARTS_EARLY: tl.constexpr,
):
    wait_for_inputs(STARTS_EARLY)
    number_E = tl.arange(0, PADDED)
    is_there_E = number_E < WIDTH
    offset_E = tl.program_id(0).to(tl.int64) * WIDTH + number_E
    x_E = tl.load(x + offset_E, mask=is_there_E, other=0.0)
    dtype = x_E.dtype
    if ADDS:
        update_E = tl.load(update + offset_E, mask=is_there_E, other=0.0)
        x_E = (x_E.to(tl.float32) + update_E.to(tl.float32)).to(dtype)
        tl.store(x + offset_E, x_E, mask=is_there_E)
    wide_E = x_E.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide_E * wide_E, 0) / WIDTH + epsilon)
    normed_E = (wide_E * scale).to(dtype).to(tl.float32)
    weight_E = tl.load(weight + number_E, mask=is_there_E, other=0.0).to(tl.float32)
    tl.store(output + offset_E, (normed_E * weight_E).to(dtype), mask=is_there_E)


@triton.jit  # type: ignore[untyped-decorator]
def _rotate(  # type: ignore[no-untyped-def]
    heads,
    cosine,
    sine,
    query_weight,
    key_weight,
    epsilon,
    NUM_QUERY: tl.constexpr,
    NUM_KEY: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_HALF: tl.constexpr,
    TURNED: tl.constexpr,
    HAS_NORMS: tl.constexpr,
    STARTS_EARLY: tl.constexpr,
):
    """Rotate the heads. Number i of a head pairs with i + D / 2; X heads of a program, P pairs."""
    wait_for_inputs(STARTS_EARLY)
    HALF: tl.constexpr = HEAD_DIM // 2
    token = tl.program_id(0).to(tl.int64)
    head_X = tl.program_id(1) * TURNED + tl.arange(0, TURNED)
    pair_P = tl.arange(0, PADDED_HALF)
    is_pair_P = pair_P < HALF
    is_there_XP = (head_X < NUM_QUERY + NUM_KEY)[:, None] & is_pair_P[None, :]
    row = heads + token * ((NUM_QUERY + 2 * NUM_KEY) * HEAD_DIM)
    offset_XP = head_X[:, None] * HEAD_DIM + pair_P[None, :]
    low_XP = tl.load(row + offset_XP, mask=is_there_XP, other=0.0)
    high_XP = tl.load(row + offset_XP + HALF, mask=is_there_XP, other=0.0)
    dtype = low_XP.dtype
    low_XP, high_XP = low_XP.to(tl.float32), high_XP.to(tl.float32)
    if HAS_NORMS:
        is_query_X1 = (head_X < NUM_QUERY)[:, None]
        query_low_P = tl.load(query_weight + pair_P, mask=is_pair_P, other=0.0)[None, :]
        query_high_P = tl.load(query_weight + HALF + pair_P, mask=is_pair_P, other=0.0)[None, :]
        key_low_P = tl.load(key_weight + pair_P, mask=is_pair_P, other=0.0)[None, :]
        key_high_P = tl.load(key_weight + HALF + pair_P, mask=is_pair_P, other=0.0)[None, :]
        square_X = tl.sum(low_XP * low_XP + high_XP * high_XP, 1)
        scale_X1 = tl.rsqrt(square_X / HEAD_DIM + epsilon)[:, None]
        low_XP = (low_XP * scale_X1).to(dtype).to(tl.float32)
        high_XP = (high_XP * scale_X1).to(dtype).to(tl.float32)
        low_weight_XP = tl.where(is_query_X1, query_low_P, key_low_P).to(tl.float32)
        high_weight_XP = tl.where(is_query_X1, query_high_P, key_high_P).to(tl.float32)
        low_XP = (low_XP * low_weight_XP).to(dtype).to(tl.float32)
        high_XP = (high_XP * high_weight_XP).to(dtype).to(tl.float32)
    angle_P = token * HEAD_DIM + pair_P
    low_cosine_P = tl.load(cosine + angle_P, mask=is_pair_P, other=0.0).to(tl.float32)[None, :]
    high_cosine_P = tl.load(cosine + angle_P + HALF, mask=is_pair_P, other=0.0).to(tl.float32)
    low_sine_P = tl.load(sine + angle_P, mask=is_pair_P, other=0.0).to(tl.float32)[None, :]
    high_sine_P = tl.load(sine + angle_P + HALF, mask=is_pair_P, other=0.0).to(tl.float32)
    low_kept_XP = (low_XP * low_cosine_P).to(dtype).to(tl.float32)
    high_kept_XP = (high_XP * high_cosine_P[None, :]).to(dtype).to(tl.float32)
    low_added_XP = (-high_XP * low_sine_P).to(dtype).to(tl.float32)
    high_added_XP = (low_XP * high_sine_P[None, :]).to(dtype).to(tl.float32)
    tl.store(row + offset_XP, (low_kept_XP + low_added_XP).to(dtype), mask=is_there_XP)
    tl.store(row + offset_XP + HALF, (high_kept_XP + high_added_XP).to(dtype), mask=is_there_XP)


@triton.jit  # type: ignore[untyped-decorator]
def _gate(  # type: ignore[no-untyped-def]
    gate_up, output, WIDTH: tl.constexpr, GATED: tl.constexpr, STARTS_EARLY: tl.constexpr
):
    """Apply SiLU to the gate and multiply."""
    wait_for_inputs(STARTS_EARLY)
    row = tl.program_id(0).to(tl.int64)
    number_I = tl.program_id(1) * GATED + tl.arange(0, GATED)
    is_there_I = number_I < WIDTH
    offset_I = row * (2 * WIDTH) + number_I
    gate_I = tl.load(gate_up + offset_I, mask=is_there_I, other=0.0)
    up_I = tl.load(gate_up + offset_I + WIDTH, mask=is_there_I, other=0.0)
    wide_I = gate_I.to(tl.float32)
    gated_I = (wide_I / (1.0 + tl.exp(-wide_I))).to(gate_I.dtype).to(tl.float32)
    product_I = (gated_I * up_I.to(tl.float32)).to(gate_I.dtype)
    tl.store(output + row * WIDTH + number_I, product_I, mask=is_there_I)


class TritonOps:
    """Operations for any type on a GPU with SiLU, one launch each. Implements LayerOps."""

    compiler_version: str = triton.__version__
    """Version of Triton. Another version may order sums in another way, so this is part of the
    numerics fingerprint."""

    def __init__(self, *, starts_early: bool = False) -> None:
        """Set whether kernels may start early on the GPU."""
        self._launch = launch_options(starts_early)

    def add_norm(self, x_TE: Tensor, update_TE: Tensor | None, norm: RMSNorm) -> Tensor:
        """See LayerOps."""
        width = x_TE.shape[1]
        output_TE = torch.empty_like(x_TE)
        with torch.cuda.device_of(x_TE):  # type: ignore[no-untyped-call]
            _add_norm[(len(x_TE),)](
                x_TE,
                x_TE if update_TE is None else update_TE,
                norm.weight,
                output_TE,
                norm.epsilon,
                WIDTH=width,
                PADDED=triton.next_power_of_2(width),
                ADDS=update_TE is not None,
                num_warps=8,
                **self._launch,
            )
        return output_TE

    def rotate(self, heads_TXD: Tensor, rotation: Rotation, heads: Heads) -> Tensor:
        """See LayerOps. In place."""
        query_norm, key_norm = heads.query_norm, heads.key_norm
        has_norms = query_norm is not None and key_norm is not None
        none = rotation.cosine
        head_dim = heads_TXD.shape[2]
        num_turned = heads.num_query + heads.num_key
        with torch.cuda.device_of(heads_TXD):  # type: ignore[no-untyped-call]
            _rotate[(len(heads_TXD), triton.cdiv(num_turned, _TURNED_HEADS))](
                heads_TXD,
                rotation.cosine,
                rotation.sine,
                none if query_norm is None else query_norm.weight,
                none if key_norm is None else key_norm.weight,
                0.0 if query_norm is None else query_norm.epsilon,
                NUM_QUERY=heads.num_query,
                NUM_KEY=heads.num_key,
                HEAD_DIM=head_dim,
                PADDED_HALF=triton.next_power_of_2(head_dim // 2),
                TURNED=_TURNED_HEADS,
                HAS_NORMS=has_norms,
                **self._launch,
            )
        return heads_TXD

    def gate(self, gate_up: Tensor, activation: nn.Module) -> Tensor:
        """See LayerOps."""
        width = gate_up.shape[1] // 2
        output_TI = gate_up.new_empty(len(gate_up), width)
        with torch.cuda.device_of(gate_up):  # type: ignore[no-untyped-call]
            _gate[(len(gate_up), triton.cdiv(width, _GATED))](
                gate_up, output_TI, WIDTH=width, GATED=_GATED, **self._launch
            )
        return output_TI
