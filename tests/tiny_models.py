"""Tiny random transformers of the named architectures, and the reference that judges us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    Glm4Config,
    Glm4ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from specdec_core.layers.packed_linear import pack_linears
from specdec_core.loading.self_check import make_exact
from specdec_core.models.llama import LlamaModel, fuse
from specdec_core.models.registry import LLAMA_MODEL_TYPES
from specdec_core.worker.model_runner import ModelRunner

VOCAB = 97
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ARCHITECTURES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "glm4": (Glm4Config, Glm4ForCausalLM, {}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
}


def tiny_model(architecture: str, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A 2-layer random float32 model whose greedy output is not a constant."""
    config_class, model_class, extra = ARCHITECTURES[architecture]
    torch.manual_seed(seed)
    model: PreTrainedModel = model_class(config_class(**{**_SHAPE, **extra, **changes}))
    return model.eval()


FUSED = tuple(f"fused {model_type}" for model_type in LLAMA_MODEL_TYPES)
DECODERS = (*sorted(ARCHITECTURES), *FUSED)
"""Architectures through transformers' forward, then those that have one of ours through it."""


def tiny_decoder(
    name: str, dtype: torch.dtype = torch.float32, **changes: Any
) -> PreTrainedModel | LlamaModel:
    """The tiny model of one of DECODERS, as a ModelRunner takes it."""
    model = tiny_model(architecture_of(name), **changes).to(dtype)
    return fuse(model) if name in FUSED else model


def packed_model(
    name: str, dtype: torch.dtype, kv_cache_tokens: int = 16384, **changes: Any
) -> ModelRunner:
    """One of DECODERS with packed linears over a cache, in fast numerics."""
    weights = tiny_decoder(name, dtype, **changes)
    pack_linears(weights)
    return ModelRunner(weights, vocab_size=VOCAB, kv_cache_tokens=kv_cache_tokens)


def exact_model(
    name: str, dtype: torch.dtype, kv_cache_tokens: int = 16384, **changes: Any
) -> ModelRunner:
    """The same in exact numerics."""
    model = packed_model(name, dtype, kv_cache_tokens, **changes)
    make_exact(model)
    return model


def architecture_of(decoder: str) -> str:
    return decoder.removeprefix("fused ")


def reference_greedy(
    model: PreTrainedModel, prompt: Sequence[int], max_tokens: int, stop_ids: Sequence[int] = ()
) -> list[int]:
    """What transformers' own `generate()` emits behind `prompt`, one sequence at a time."""
    ids = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=list(stop_ids) or None,
        pad_token_id=0,
    )
    emitted: list[int] = ids[0, len(prompt) :].tolist()
    return emitted
