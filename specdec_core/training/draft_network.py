"""The network of a draft: a small Llama, made for a target and started from its weights.

A wide draft has the target's hidden size, embeddings, final norm and head. Only its layers and the
norm are trained. A narrow draft has its own embeddings, tied to its head. They start as the
target's embeddings in their principal directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig

from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from specdec_core.training.target_files import EMBEDDINGS, FINAL_NORM, HEAD, TargetFiles

_NARROW_HEAD_DIM = 32
_ROUNDING = 32


class Initialisation(StrEnum):
    """The part of the target's weights that a draft starts with."""

    LAYERS = "layers"
    """Embeddings, final norm and whole layers, for wide drafts of targets with Llama's layers."""
    EMBEDDINGS = "embeddings"
    RANDOM = "random"
    """No weights. A wide draft still shares the target's embeddings and head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftShape:
    """Size and initialisation of a draft."""

    num_layers: int = 1
    hidden_size: int | None = None
    """Hidden size. None: the target's."""
    initialise_from: Initialisation | None = None
    """Initial weights. None: layers for a wide draft, embeddings for a narrow one."""
    from_layers: tuple[int, ...] = ()
    """The target's layers to start with. If empty, layers are spread evenly, the first included."""
    vocab_size: int | None = None
    """Number of IDs that the draft may propose. None: all."""

    def __post_init__(self) -> None:
        if self.num_layers < 1:
            raise InvalidRequestError(f"a draft needs at least 1 layer, got {self.num_layers}")
        if self.hidden_size is not None and self.hidden_size % _NARROW_HEAD_DIM:
            raise InvalidRequestError(
                f"hidden_size must be a multiple of {_NARROW_HEAD_DIM}, got {self.hidden_size}"
            )
        if self.from_layers and len(self.from_layers) != self.num_layers:
            raise InvalidRequestError(
                f"from_layers names {len(self.from_layers)} layers, the draft has {self.num_layers}"
            )
        if self.vocab_size is not None and self.vocab_size < 1:
            raise InvalidRequestError(f"vocab_size must be at least 1, got {self.vocab_size}")

    def is_wide(self, target: PreTrainedConfig) -> bool:
        return self.hidden_size in (None, target.hidden_size)

    def initialisation(self, target: PreTrainedConfig) -> Initialisation:
        if self.initialise_from is not None:
            return self.initialise_from
        return Initialisation.LAYERS if self.is_wide(target) else Initialisation.EMBEDDINGS


def build_draft(target: TargetFiles, shape: DraftShape, seed: int) -> LlamaForCausalLM:
    """Return the untrained draft in float32, with requires_grad off for frozen parameters.

    Raises ModelNotSupportedError or InvalidRequestError if the target's weights do not fit.
    """
    is_wide = shape.is_wide(target.config)
    start = shape.initialisation(target.config)
    if start is Initialisation.LAYERS and not is_wide:
        raise InvalidRequestError(
            "only a draft of the target's hidden size can start from its layers"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = LlamaForCausalLM(_config(target.config, shape))
    network.float()
    if is_wide:
        _share_embeddings(network, target)
    if start is Initialisation.LAYERS:
        _copy_layers(network, target, shape)
    elif start is Initialisation.EMBEDDINGS and not is_wide:
        assert shape.hidden_size is not None
        narrow_VH = principal_part(target.weight(EMBEDDINGS), shape.hidden_size)
        network.model.embed_tokens.weight.data.copy_(narrow_VH)
    return network


def _config(target: PreTrainedConfig, shape: DraftShape) -> LlamaConfig:
    width: dict[str, Any] = _width(target, shape)
    return LlamaConfig(
        **width,
        vocab_size=target.vocab_size,
        num_hidden_layers=shape.num_layers,
        max_position_embeddings=target.max_position_embeddings,
        rms_norm_eps=getattr(target, "rms_norm_eps", 1e-6),
        rope_parameters=getattr(target, "rope_parameters", None),
        initializer_range=getattr(target, "initializer_range", 0.02),
        attention_bias=getattr(target, "attention_bias", False),
        mlp_bias=getattr(target, "mlp_bias", False),
        bos_token_id=target.bos_token_id,
        eos_token_id=target.eos_token_id,
        pad_token_id=target.pad_token_id,
        tie_word_embeddings=target.tie_word_embeddings or not shape.is_wide(target),
        dtype="float32",
    )


def _width(target: PreTrainedConfig, shape: DraftShape) -> dict[str, int]:
    heads = target.num_attention_heads
    if shape.is_wide(target):
        return {
            "hidden_size": target.hidden_size,
            "intermediate_size": target.intermediate_size,
            "num_attention_heads": heads,
            "num_key_value_heads": getattr(target, "num_key_value_heads", None) or heads,
            "head_dim": getattr(target, "head_dim", None) or target.hidden_size // heads,
        }
    assert shape.hidden_size is not None
    ratio = target.intermediate_size / target.hidden_size
    num_heads = shape.hidden_size // _NARROW_HEAD_DIM
    return {
        "hidden_size": shape.hidden_size,
        "intermediate_size": max(round(ratio * shape.hidden_size / _ROUNDING), 1) * _ROUNDING,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_heads,
        "head_dim": _NARROW_HEAD_DIM,
    }


def _share_embeddings(network: LlamaForCausalLM, target: TargetFiles) -> None:
    embeddings, head = network.model.embed_tokens, network.lm_head
    embeddings.weight.data.copy_(target.weight(EMBEDDINGS))
    if not network.config.tie_word_embeddings:
        head.weight.data.copy_(target.weight(HEAD))
    embeddings.weight.requires_grad_(False)
    head.weight.requires_grad_(False)
    network.model.norm.weight.data.copy_(target.weight(FINAL_NORM))


def _copy_layers(network: LlamaForCausalLM, target: TargetFiles, shape: DraftShape) -> None:
    num_layers = target.config.num_hidden_layers
    indices = shape.from_layers or spread_evenly(num_layers, shape.num_layers)
    for layer, index in zip(network.model.layers, indices, strict=True):
        if not 0 <= index < num_layers:
            raise InvalidRequestError(
                f"from_layers: the target has layers 0..{num_layers - 1}, got {index}"
            )
        prefix = f"model.layers.{index}."
        state = layer.state_dict()
        _check_layer(target, prefix, set(state))
        layer.load_state_dict({name: target.weight(prefix + name) for name in state})


def _check_layer(target: TargetFiles, prefix: str, names: set[str]) -> None:
    difference = sorted(target.names_under(prefix) ^ names)
    if difference:
        raise ModelNotSupportedError(
            f"layers of a {target.config.model_type} model differ from Llama's "
            f"({difference[0]}): initialise from embeddings"
        )


def spread_evenly(num_layers: int, count: int) -> tuple[int, ...]:
    """Return `count` of `num_layers` layers: the first and, if `count` is above 1, the last
    included."""
    if count > num_layers:
        raise InvalidRequestError(
            f"the target has only {num_layers} layers, the draft needs {count} of them"
        )
    return tuple(round(i * (num_layers - 1) / max(count - 1, 1)) for i in range(count))


def principal_part(embeddings_VH: Tensor, size: int) -> Tensor:
    """Return the embeddings in their `size` directions of greatest variation, [V, size]."""
    if size > embeddings_VH.shape[1]:
        raise InvalidRequestError(
            f"hidden_size must be at most the target's {embeddings_VH.shape[1]}, got {size}"
        )
    vectors_HH: Tensor = torch.linalg.eigh(embeddings_VH.T @ embeddings_VH).eigenvectors
    return embeddings_VH @ vectors_HH[:, -size:]
