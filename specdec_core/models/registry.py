"""Which models run: by our own forward, by transformers' forward, or not at all.

A model type whose layers compute the same as LlamaLayer needs one entry in LLAMA_MODEL_TYPES. Every
other model runs by the forward of transformers (generic.py), if `check_supported` accepts its
configuration. A slot must be able to roll back to any length, and a row's result must not depend on
the other rows of its pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specdec_core.errors import InvalidRequestError, ModelNotSupportedError

if TYPE_CHECKING:  # checking a configuration needs neither of them
    from torch import nn
    from transformers import PreTrainedConfig

LLAMA_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Model types of transformers that LlamaModel (llama.py) computes. Projections may have biases, and
queries and keys may have norms. tests/tiny_models.py needs a tiny model of each."""
_OTHER_MODALITIES = ("vision_config", "audio_config", "text_config")
_LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


def check_supported(config: PreTrainedConfig, max_model_len: int) -> None:
    """Raise ModelNotSupportedError or InvalidRequestError, naming the reason, if the model cannot
    run."""
    name = config.model_type
    _check_decoder_only(config, name)
    if getattr(config, "quantization_config", None) is not None:
        raise ModelNotSupportedError(
            f"{name}: quantised weights are not supported; use the unquantised checkpoint"
        )
    _check_length(config, name, max_model_len)
    _check_layers(config, name, max_model_len)
    _check_rope(config, name, max_model_len)


def freeze_rope(model: nn.Module) -> None:
    """Freeze rotary embeddings whose frequencies change with the longest row.

    Within the checked lengths no other frequencies can occur. In every pass, transformers looks
    for the longest row, and for most kinds makes the host wait for the device.
    """
    for module in model.modules():
        rotary: Any = module
        if getattr(rotary, "rope_type", None) in _LENGTH_DEPENDENT_ROPE:
            rotary.rope_type = "default"


def _check_decoder_only(config: PreTrainedConfig, name: str) -> None:
    if config.is_encoder_decoder:
        raise ModelNotSupportedError(f"{name}: encoder-decoder models are not supported")
    for attribute in _OTHER_MODALITIES:
        if getattr(config, attribute, None) is not None:
            raise ModelNotSupportedError(
                f"{name}: multimodal models ({attribute}) are not supported; use a text-only model"
            )


def _check_length(config: PreTrainedConfig, name: str, max_model_len: int) -> None:
    limit = getattr(config, "max_position_embeddings", None)
    if limit is None:
        raise ModelNotSupportedError(f"{name}: the model has no max_position_embeddings")
    if not 1 <= max_model_len <= limit:
        raise InvalidRequestError(f"max_model_len must be in 1..{limit}, got {max_model_len}")


def _check_layers(config: PreTrainedConfig, name: str, max_model_len: int) -> None:
    """Check that all layers keep every position, which a rollback needs."""
    window = getattr(config, "sliding_window", None)
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None:
        layer_types = ["full_attention" if window is None else "sliding_attention"]
    for layer_type in sorted(set(layer_types)):
        if layer_type == "sliding_attention" and window is not None:
            if window < max_model_len:
                raise ModelNotSupportedError(
                    f"{name}: its sliding window of {window} tokens is smaller than "
                    f"max_model_len={max_model_len}; set max_model_len to at most {window}"
                )
        elif layer_type != "full_attention":
            raise ModelNotSupportedError(
                f"{name}: layers of type {layer_type} cannot roll back; full attention is needed"
            )


def _check_rope(config: PreTrainedConfig, name: str, max_model_len: int) -> None:
    """Check the length of rotary embeddings that change when the longest row of a pass exceeds the
    original length."""
    parameters = getattr(config, "rope_parameters", None) or {}
    rope_type = parameters.get("rope_type", "default")
    original = parameters.get("original_max_position_embeddings", config.max_position_embeddings)
    if rope_type in _LENGTH_DEPENDENT_ROPE and max_model_len > original:
        raise ModelNotSupportedError(
            f"{name}: {rope_type} rotary embeddings change beyond {original} tokens; "
            f"set max_model_len to at most {original}, got {max_model_len}"
        )
