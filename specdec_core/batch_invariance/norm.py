"""RMSNorms of transformers whose rows do not influence each other, on any device.

Those of transformers take a mean over the last axis in a separate operation. A GPU divides that
among threads by the number of rows. PyTorch's rms_norm gives each row the same threads. On a CPU
both give the same bits.
"""

from __future__ import annotations

import copy
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from specdec_core.batch_invariance.module import ExactModule, plain_modules
from specdec_core.layers.elementwise import RMSNorm

_NUM_ROWS_COMPARED = 16


class ExactNorm(ExactModule):
    """Computes the same as `plain` with our RMSNorm, over the same weight."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__(plain)
        self.norm = RMSNorm(plain)

    def forward(self, input: Tensor) -> Tensor:
        """Apply our norm. Rows of another type than the weights', which transformers widens, use
        `plain`."""
        norm = self.norm if input.dtype == self.norm.weight.dtype else self.plain
        output: Tensor = norm(input)
        return output


@torch.inference_mode()
def make_norms_exact(model: nn.Module) -> None:
    """Replace the plain RMSNorms of `model`; all others stay."""
    for name, norm in list(plain_modules(model, _is_plain)):
        model.set_submodule(name, ExactNorm(norm))


def _is_plain(module: Any) -> TypeGuard[nn.Module]:
    """Return True if the module looks like a plain RMSNorm and computes the same bits as ours.

    Other modules of that name add 1 to the weight, or round after it.
    """
    looks_plain = (
        type(module).__name__.endswith("RMSNorm")
        and set(module.state_dict()) == {"weight"}
        and module.weight.dim() == 1
        and isinstance(getattr(module, "variance_epsilon", None), float)
    )
    return looks_plain and _computes_the_same(module)


def _computes_the_same(norm: Any) -> bool:
    """Compare both norms on a CPU, where ours has the bits of transformers. Weights are synthetic,
    and rows have sizes at which epsilon counts."""
    generator = torch.Generator().manual_seed(0)
    twin = copy.copy(norm)
    width, dtype = norm.weight.shape[0], norm.weight.dtype
    weight = torch.randn(width, generator=generator).to(dtype)
    twin._parameters = {"weight": nn.Parameter(weight, requires_grad=False)}
    rows = torch.randn(1, _NUM_ROWS_COMPARED, width, generator=generator)
    scale = torch.logspace(-4, 4, _NUM_ROWS_COMPARED).unsqueeze(1)
    rows = (rows * scale).to(dtype)
    theirs: Tensor = twin.forward(rows)
    return theirs.dtype == dtype and torch.equal(theirs, RMSNorm(twin)(rows))
