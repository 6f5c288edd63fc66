"""The draft of an audit: another model, or the target itself without some of its layers.

`self:N` leaves N layers out. Such a draft is as slow as the target, but it needs no other
checkpoint and shares the target's weights. It is wrong often enough that acceptance is ragged.
`self` is never wrong.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import nn
from transformers import PreTrainedModel

from specdec_core.batch_invariance.module import undo_exact
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from specdec_core.models.llama import LlamaModel
from specdec_core.worker.model_runner import ModelRunner

SELF = "self"

Module = PreTrainedModel | LlamaModel
_AnyModule = TypeVar("_AnyModule", bound=nn.Module)


def num_left_out(spec_model: str) -> int | None:
    """Return N for `self:N`, 0 for `self`, and None for another model."""
    name, _, count = spec_model.partition(":")
    if name != SELF:
        return None
    if count and not count.isdecimal():
        raise InvalidRequestError(f"--spec-model self:N needs a number of layers, got {count!r}")
    return int(count or 0)


def self_draft(target: ModelRunner, num_layers: int) -> ModelRunner:
    """Return the target without `num_layers` of its layers, with its own cache of equal size.

    It runs in fast numerics, because the target decides on every proposal.
    """
    return ModelRunner(
        _without_layers(target.module, num_layers),
        vocab_size=target.vocab_size,
        kv_cache_tokens=target.kv_cache_spec.max_len(target.num_blocks),
        max_model_len=target.max_model_len,
    )


def _without_layers(model: Module, num_layers: int) -> Module:
    layers = getattr(_body(model), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ModelNotSupportedError(f"{type(model).__name__}: give --spec-model another model")
    if num_layers >= len(layers):
        raise InvalidRequestError(
            f"--spec-model self:{num_layers}: the target has {len(layers)} layers, and "
            "the draft must keep at least one"
        )
    twin = _twin(model)
    undo_exact(twin)
    kept = _spread_out(len(layers), num_layers)
    body = _body(twin)
    body.layers = nn.ModuleList(body.layers[index] for index in kept)
    for index, layer in enumerate(body.layers):
        _renumber(layer, index)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[index] for index in kept]
    twin.config = body.config = config
    return twin


def _body(model: Module) -> Any:
    """Return the module that has the layers."""
    return model if isinstance(model, LlamaModel) else getattr(model, "model", None)


def _spread_out(num_layers: int, num_left_out: int) -> list[int]:
    """Return the layers that stay. The others are spread evenly between the first and the last."""
    step = num_layers / (num_left_out + 1)
    left_out = {int(step * (index + 1)) for index in range(num_left_out)}
    return [index for index in range(num_layers) if index not in left_out]


def _twin(module: _AnyModule) -> _AnyModule:
    """Return a copy that shares every parameter but may be rearranged."""
    twin = copy.copy(module)
    twin._modules = {
        name: None if child is None else _twin(child) for name, child in module._modules.items()
    }
    return twin


def _renumber(layer: nn.Module, index: int) -> None:
    """Set the layer's index, under which its attention stores keys and values."""
    for module in layer.modules():
        if hasattr(module, "layer_idx"):
            module.layer_idx = index  # type: ignore[assignment]
