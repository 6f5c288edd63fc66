"""Drafts made from the target itself, of several qualities and without training.

Dropped layers make a draft that is cheaper and much worse, rounded weights one that is hardly
worse. All share the target's tokenizer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

_GROUP = 64
"""Neighbouring weights of a row that share a scale."""


def without_layers(target: Any, fractions: Sequence[float]) -> Any:
    """A copy of the target that lacks the layers at these fractions of its depth."""
    draft = copy.deepcopy(target)
    layers = draft.model.layers
    dropped = {int(fraction * len(layers)) for fraction in fractions}
    draft.model.layers = nn.ModuleList(x for i, x in enumerate(layers) if i not in dropped)
    for index, layer in enumerate(draft.model.layers):
        layer.self_attn.layer_idx = index
    draft.config.num_hidden_layers = len(draft.model.layers)
    return draft


def with_rounded_weights(target: Any, bits: int) -> Any:
    """A copy whose linear layers hold weights of so many bits; embeddings and head stay."""
    draft = copy.deepcopy(target)
    for module in draft.model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = _rounded(module.weight.data, bits)
    return draft


def _rounded(weight: Tensor, bits: int) -> Tensor:
    """To the nearest of 2^bits - 1 values around 0, the outermost at a group's greatest weight."""
    groups = weight.reshape(-1, _GROUP)
    scale = groups.abs().amax(dim=1, keepdim=True).clamp_(min=torch.finfo(weight.dtype).tiny)
    scale /= 2 ** (bits - 1) - 1
    return ((groups / scale).round() * scale).reshape(weight.shape)


DRAFTS: dict[str, Callable[[Any], Any]] = {
    "int8 weights": partial(with_rounded_weights, bits=8),
    "int4 weights": partial(with_rounded_weights, bits=4),
    "1 layer dropped": partial(without_layers, fractions=(0.5,)),
    "3 layers dropped": partial(without_layers, fractions=(0.25, 0.5, 0.75)),
}
