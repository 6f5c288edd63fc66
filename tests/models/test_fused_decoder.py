"""Our own forward: the bits of transformers' in fewer operations."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import SeedOssConfig, SeedOssForCausalLM

from specdec_core.config import ModelImpl
from specdec_core.loading.loader import LoadConfig, load_model
from specdec_core.model import score
from specdec_core.models import llama
from specdec_core.models.llama import LlamaModel, fuse
from specdec_core.models.registry import LLAMA_MODEL_TYPES
from specdec_core.worker.model_runner import ModelRunner
from tests.models.folders import save_model
from tests.tiny_models import (
    ARCHITECTURES,
    FUSED,
    VOCAB,
    architecture_of,
    packed_model,
    tiny_model,
)

WIDE = {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64}


SIZES = {
    torch.float32: ((1, 40, 17, 3, 64), (1, 1, 5, 4, 1), (3, 1, 1, 1, 9)),
    # With AMX the library chooses its kernel for 33 rows and more by the width of the weight, so
    # that joined weights may round otherwise there.
    torch.bfloat16: ((1, 12, 7, 3, 9), (1, 1, 5, 4, 1), (3, 1, 1, 1, 9), (2, 10, 5, 8, 7)),
}


def logits_of(decoder: str, dtype: torch.dtype) -> Tensor:
    """Of prefills, single tokens and proposals, some rolled back, over packed weights."""
    model = packed_model(decoder, dtype, **WIDE)
    rng = random.Random(0)
    slots = [model.allocate() for _ in range(5)]
    logits = []
    for sizes in SIZES[dtype]:
        fed = [[rng.randrange(VOCAB) for _ in range(size)] for size in sizes]
        feeds = [(s, ids, len(ids)) for s, ids in zip(slots, fed, strict=True)]
        logits.append(score(model, feeds))
        for slot in slots:
            model.rollback(slot, model.cached_len(slot) - 1)
    return torch.cat(logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("decoder", FUSED)
def test_its_logits_are_those_of_transformers_bit_for_bit(decoder: str, dtype: torch.dtype) -> None:
    assert torch.equal(logits_of(decoder, dtype), logits_of(architecture_of(decoder), dtype))


def test_biases_and_tied_heads_are_kept() -> None:
    changes = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    plain = tiny_model("llama", **changes)
    for name, parameter in plain.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    ids = [3, 4, 5, 6]
    with torch.inference_mode():
        expected = plain(input_ids=torch.tensor([ids])).logits[0]
    model = ModelRunner(fuse(plain), vocab_size=VOCAB, kv_cache_tokens=64)
    logits = score(model, [(model.allocate(), ids, len(ids))])
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_weights_are_in_memory_once() -> None:
    plain = tiny_model("qwen2")
    count = sum(parameter.numel() for parameter in plain.parameters())
    fused = fuse(plain)
    assert sum(parameter.numel() for parameter in fused.parameters()) == count
    assert len(plain.model.layers) == 0


def test_another_model_type_with_llamas_layers_is_one_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed_oss = (SeedOssConfig, SeedOssForCausalLM, {"attention_out_bias": True})
    monkeypatch.setitem(ARCHITECTURES, "seed_oss", seed_oss)
    plain = tiny_model("seed_oss")
    ids = [3, 4, 5, 6]
    with torch.inference_mode():
        expected = plain(input_ids=torch.tensor([ids])).logits[0]
    monkeypatch.setattr(llama, "LLAMA_MODEL_TYPES", (*LLAMA_MODEL_TYPES, "seed_oss"))
    fused = fuse(plain)
    assert isinstance(fused, LlamaModel)
    model = ModelRunner(fused, vocab_size=VOCAB, kv_cache_tokens=64)
    logits = score(model, [(model.allocate(), ids, len(ids))])
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_an_architecture_that_it_does_not_know_stays_with_transformers() -> None:
    model = tiny_model("glm4")
    assert fuse(model) is model


def test_loading_takes_it_unless_transformers_is_asked_for(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", end_token_ids=(7,))
    ours, theirs = (
        load_model(folder, LoadConfig(kv_cache_tokens=1024, model_impl=impl)) for impl in ModelImpl
    )
    assert isinstance(ours.model.module, LlamaModel)
    assert not isinstance(theirs.model.module, LlamaModel)
    assert ours.fingerprint != theirs.fingerprint, "other kernels may round otherwise"
