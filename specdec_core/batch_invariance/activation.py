"""Activation functions on a CPU whose rows do not influence each other.

A kernel takes the numbers of a call as one long line, in whole vectors. The rest after the last
vector uses another formula, which differs in the last bit (SiLU in float32, GELU everywhere). A
line that is divided among threads has a rest at each cut. The row with the rest depends on the
other rows. So rows are padded to whole vectors, and a line is only cut between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers.activations import ACT2CLS

from specdec_core.batch_invariance.module import ExactModule, plain_modules

_VECTOR = 64
"""Numbers of one vector operation of a kernel, or a multiple: two registers of 512 bits in
bfloat16."""
_UNDIVIDED = 16384
"""Up to this number of numbers, no kernel divides a call among threads. GELU divides larger calls
among all threads."""
_SHARE = 32768
"""Numbers per thread in the other kernels (at::internal::GRAIN_SIZE)."""
_KINDS: Iterable[Any] = ACT2CLS.values()
_ACTIVATIONS = tuple(kind[0] if isinstance(kind, tuple) else kind for kind in _KINDS)


class ExactActivation(ExactModule):
    """Calls an activation on whole vectors only. Costs nothing if the width is a multiple of a
    vector."""

    def forward(self, input: Tensor) -> Tensor:
        width = input.shape[-1]
        if width % _VECTOR == 0:
            return self._in_whole_shares(input)
        padded = self._in_whole_shares(pad(input, (0, -width % _VECTOR)))
        return padded[..., :width].contiguous()

    def _in_whole_shares(self, input: Tensor) -> Tensor:
        if _has_whole_shares(input.numel()):
            output: Tensor = self.plain(input)
            return output
        cuts = range(_UNDIVIDED, input.numel(), _UNDIVIDED)
        tiles = input.flatten().tensor_split(list(cuts))
        return torch.cat([self.plain(tile) for tile in tiles]).view(input.shape)


def make_activations_exact(model: nn.Module) -> None:
    """Wrap the activations of `model`."""
    for name, activation in list(plain_modules(model, _is_activation)):
        model.set_submodule(name, ExactActivation(activation))


def _is_activation(module: nn.Module) -> TypeGuard[nn.Module]:
    return isinstance(module, _ACTIVATIONS)


def _has_whole_shares(num_numbers: int) -> bool:
    """Return True if each of the threads of a call gets whole vectors."""
    if num_numbers <= _UNDIVIDED:
        return True
    num_threads = torch.get_num_threads()
    num_shares = {num_threads, min(num_threads, -(-num_numbers // _SHARE))}
    return all(-(-num_numbers // count) % _VECTOR == 0 for count in num_shares)
