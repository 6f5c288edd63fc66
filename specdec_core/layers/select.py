"""Selects the operations between the linears of a layer for this device, once, at load.

On a GPU these are our own Triton kernels if their results match PyTorch's. Otherwise they are
PyTorch's. Shape legend as in layers/elementwise.py.
"""

from __future__ import annotations

import importlib.util
import logging
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from specdec_core.layers.elementwise import Heads, LayerOps, RMSNorm, Rotation, TorchOps

_logger = logging.getLogger(__name__)

_NUM_ROWS = 3
_TOLERANCE = 2e-2


class Sizes(NamedTuple):
    """Sizes of the tensors that test the operations."""

    hidden: int
    ffn: int
    num_query: int
    num_key: int
    head_dim: int
    has_norms: bool


def device_ops_for(model: Any) -> LayerOps | None:
    """Return the GPU operations for a model of Llama's shape, or None if there are none.

    A kernel that does not compile, does not run or gives wrong results is skipped. The log has the
    reason.
    """
    device: torch.device = model.device
    if device.type != "cuda" or model.config.hidden_act != "silu":
        return None
    if importlib.util.find_spec("triton") is None:
        _logger.info("fused kernels between the linears are unavailable: Triton is not installed")
        return None
    try:
        from specdec_core.layers.elementwise_triton import TritonOps
        from specdec_core.layers.triton_launch import may_start_early

        ops = TritonOps(starts_early=may_start_early(device))
        if is_right(ops, _sizes_of(model), model.dtype, device):
            return ops
        reason = "their answers are wrong"
    except Exception as error:  # of any library or compiler: there is another way
        reason = str(error)
    _logger.warning(
        "fused kernels between the linears are unavailable; using PyTorch operations, so "
        "a pass takes about 1.5 times as long: %s",
        reason,
    )
    return None


def _sizes_of(model: Any) -> Sizes:
    config, attention = model.config, model.model.layers[0].self_attn
    return Sizes(
        hidden=config.hidden_size,
        ffn=config.intermediate_size,
        num_query=config.num_attention_heads,
        num_key=config.num_key_value_heads,
        head_dim=attention.head_dim,
        has_norms=hasattr(attention, "q_norm"),
    )


@torch.inference_mode()
def is_right(ops: LayerOps, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> bool:
    """Return True if the results match PyTorch's, except for the order of sums."""
    expected, actual = (_answers(some, sizes, dtype, device) for some in (TorchOps(), ops))
    pairs = zip(expected, actual, strict=True)
    return all(torch.allclose(a, b, atol=_TOLERANCE, rtol=_TOLERANCE) for a, b in pairs)


def _answers(ops: LayerOps, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return the results of every operation in float32, with the same inputs each time."""
    generator = torch.Generator().manual_seed(0)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    x_TE, update_TE = made(_NUM_ROWS, sizes.hidden), made(_NUM_ROWS, sizes.hidden)
    norm = _norm(made(sizes.hidden))
    norms = [_norm(made(sizes.head_dim)) if sizes.has_norms else None for _ in range(2)]
    heads = Heads(sizes.num_query, sizes.num_key, *norms)
    heads_TXD = made(_NUM_ROWS, sizes.num_query + 2 * sizes.num_key, sizes.head_dim)
    rotation = Rotation(made(_NUM_ROWS, sizes.head_dim), made(_NUM_ROWS, sizes.head_dim))
    first_TE = ops.add_norm(x_TE, None, norm)
    second_TE = ops.add_norm(x_TE, update_TE, norm)
    turned_TXD = ops.rotate(heads_TXD, rotation, heads)
    gated_TI = ops.gate(made(_NUM_ROWS, 2 * sizes.ffn), nn.SiLU())
    return [some.float() for some in (first_TE, second_TE, x_TE, turned_TXD, gated_TI)]


def _norm(weight: Tensor) -> RMSNorm:
    norm = nn.Module()
    norm.weight = nn.Parameter(weight, requires_grad=False)
    norm.variance_epsilon = 1e-6  # type: ignore[assignment]
    return RMSNorm(norm)
