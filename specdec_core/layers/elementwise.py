"""Operations between the linears of a layer of Llama's shape: PyTorch's operations, or our kernels.

Both round every number where transformers does. PyTorch's give the same bits as transformers. The
kernels (bfloat16 on a CPU) sum in their own order.

Shape legend: T tokens of the pass, E hidden size, X heads, D head size, I width of the MLP.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from specdec_core.kernels.ops import NativeKernels


class RMSNorm(nn.Module):
    """x / rms(x), rounded to the rows' type, then times the weight (arXiv 1910.07467)."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight: nn.Parameter = norm.weight
        self.epsilon: float = norm.variance_epsilon

    def forward(self, rows: Tensor) -> Tensor:
        """Apply the norm over the last axis of [*X, E]."""
        return rms_norm(rows, rows.shape[-1:], None, self.epsilon).mul_(self.weight)


class Rotation(NamedTuple):
    """Rotary factors for the positions of the tokens of a pass, [T, D] each."""

    cosine: Tensor
    sine: Tensor


class Heads(NamedTuple):
    """Layout of the heads in a token's row: queries, keys, values."""

    num_query: int
    num_key: int
    query_norm: RMSNorm | None
    key_norm: RMSNorm | None


class LayerOps(Protocol):
    """Operations of a layer other than linears and attention."""

    def add_norm(self, x_TE: Tensor, update_TE: Tensor | None, norm: RMSNorm) -> Tensor:
        """Add `update_TE` to `x_TE` in place; return the norm of the sum."""
        ...

    def rotate(self, heads_TXD: Tensor, rotation: Rotation, heads: Heads) -> Tensor:
        """Apply the norms of query and key heads, if any, then the rotary position embedding.

        The embedding is that of arXiv 2104.09864. Return [T, X, D] with rotated query and key
        heads.
        """
        ...

    def gate(self, gate_up: Tensor, activation: nn.Module) -> Tensor:
        """Return activation(gate) * up of [T, 2 I] as [T, I]."""
        ...


class TorchOps:
    """Operations for any device and type, with the bits of transformers."""

    def add_norm(self, x_TE: Tensor, update_TE: Tensor | None, norm: RMSNorm) -> Tensor:
        if update_TE is not None:
            x_TE.add_(update_TE)
        normed: Tensor = norm(x_TE)
        return normed

    def rotate(self, heads_TXD: Tensor, rotation: Rotation, heads: Heads) -> Tensor:
        sizes = [heads.num_query, heads.num_key, heads.num_key]
        query, key, value = torch.split(heads_TXD, sizes, dim=1)
        if heads.query_norm is not None and heads.key_norm is not None:
            query, key = heads.query_norm(query), heads.key_norm(key)
        return torch.cat([_turned(query, rotation), _turned(key, rotation), value], dim=1)

    def gate(self, gate_up: Tensor, activation: nn.Module) -> Tensor:
        gate_TI, up_TI = gate_up.chunk(2, dim=-1)
        gated: Tensor = activation(gate_TI)
        return gated.mul_(up_TI)


class NativeOps:
    """Operations for bfloat16 on a CPU with SiLU, one call each."""

    def __init__(self, kernels: NativeKernels) -> None:
        self._kernels = kernels

    def add_norm(self, x_TE: Tensor, update_TE: Tensor | None, norm: RMSNorm) -> Tensor:
        return self._kernels.add_norm(x_TE, update_TE, norm.weight, norm.epsilon)

    def rotate(self, heads_TXD: Tensor, rotation: Rotation, heads: Heads) -> Tensor:
        norms = None
        if heads.query_norm is not None and heads.key_norm is not None:
            norms = heads.query_norm.weight, heads.key_norm.weight, heads.key_norm.epsilon
        sizes = heads.num_query, heads.num_key
        self._kernels.rotate(heads_TXD, *sizes, rotation.cosine, rotation.sine, norms)
        return heads_TXD

    def gate(self, gate_up: Tensor, activation: nn.Module) -> Tensor:
        return self._kernels.gate(gate_up)


def _turned(heads_TXD: Tensor, rotation: Rotation) -> Tensor:
    """Rotate the heads. Number i pairs with i + D / 2."""
    cosine, sine = (some.unsqueeze(1) for some in rotation)
    first, second = heads_TXD.chunk(2, dim=-1)
    swapped = torch.cat([-second, first], dim=-1)
    return (heads_TXD * cosine).add_(swapped.mul_(sine))
