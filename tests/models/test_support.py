"""Models that cannot roll back, or that we cannot run, are refused by name before any weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    FalconMambaConfig,
    Gemma2Config,
    LlamaConfig,
    LlavaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3NextConfig,
    T5Config,
)

from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from specdec_core.model import score
from specdec_core.models.llama import fuse
from specdec_core.models.registry import check_supported, freeze_rope
from specdec_core.worker.model_runner import ModelRunner
from tests.models.fake_gpu import GPU
from tests.tiny_models import VOCAB, tiny_model

ROPE = {"rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 2048}
_FACTORS = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
CHANGING = [
    {**ROPE, "rope_type": "dynamic", "original_max_position_embeddings": 512},
    {**ROPE, **_FACTORS, "rope_type": "longrope", "original_max_position_embeddings": 512},
]
"""Of rows that are longer than the tiny models' 512 tokens."""


@pytest.fixture(params=CHANGING, ids=["dynamic", "longrope"])
def rope(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.mark.parametrize(
    ("config", "max_model_len"),
    [
        (LlamaConfig(), 2048),
        (MistralConfig(sliding_window=None), 32768),
        (MistralConfig(sliding_window=4096), 4096),
        (Qwen2Config(), 32768),
        (LlamaConfig(rope_parameters={"rope_type": "dynamic", **ROPE}), 2048),
    ],
)
def test_full_attention_is_supported(config: PreTrainedConfig, max_model_len: int) -> None:
    check_supported(config, max_model_len)


@pytest.mark.parametrize(
    ("config", "max_model_len", "reason"),
    [
        (MistralConfig(sliding_window=4096), 4097, "window of 4096 tokens.*max_model_len=4097"),
        (
            Qwen2Config(use_sliding_window=True, sliding_window=64, max_window_layers=2),
            128,
            "sliding window of 64",
        ),
        (Gemma2Config(), 8192, "sliding window of 4096"),
        (Qwen3NextConfig(), 128, "linear_attention"),
        (T5Config(), 128, "encoder-decoder"),
        (LlavaConfig(), 128, "multimodal"),
        (FalconMambaConfig(), 128, "max_position_embeddings"),
        (LlamaConfig(quantization_config={"quant_method": "gptq"}), 128, "quantised"),
        (
            LlamaConfig(
                max_position_embeddings=4096, rope_parameters={"rope_type": "dynamic", **ROPE}
            ),
            4096,
            "dynamic rotary",
        ),
    ],
)
def test_the_rest_is_refused_by_name(
    config: PreTrainedConfig, max_model_len: int, reason: str
) -> None:
    with pytest.raises(ModelNotSupportedError, match=reason) as refusal:
        check_supported(config, max_model_len)
    assert config.model_type in str(refusal.value)


@pytest.mark.parametrize("max_model_len", [0, -1, 2049])
def test_a_length_outside_the_models_positions_is_the_callers_mistake(max_model_len: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"1..2048, got {max_model_len}"):
        check_supported(LlamaConfig(), max_model_len)


def test_frozen_rotary_embeddings_are_those_of_every_allowed_length(rope: dict[str, Any]) -> None:
    model, reference = (tiny_model("llama", rope_parameters=rope) for _ in range(2))
    freeze_rope(model)
    with torch.inference_mode():
        for length in (512, 3, 200):
            ids = torch.arange(length)[None] % VOCAB
            assert torch.equal(model(input_ids=ids).logits, reference(input_ids=ids).logits)


def test_a_pass_does_not_ask_a_gpu_how_long_its_rows_are(
    waits: list[str], rope: dict[str, Any]
) -> None:
    weights = tiny_model("llama", rope_parameters=rope).to(GPU)
    freeze_rope(weights)
    model = ModelRunner(fuse(weights), vocab_size=VOCAB, kv_cache_tokens=1024)
    waits.clear()
    score(model, [(model.allocate(), range(2, 90), 1)])
    assert waits == []
