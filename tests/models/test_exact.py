"""Exact numerics on whole models: every row's bits alone, in company and in any chunking."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from specdec_core.batch_invariance.linear import ExactLinear
from specdec_core.batch_invariance.size_classes import ClassTable
from specdec_core.config import Numerics
from specdec_core.errors import NotExactError
from specdec_core.layers.attention import sdpa as ragged_attention
from specdec_core.layers.attention.metadata import AttentionShape, SizeRange
from specdec_core.loading.loader import apply_numerics
from specdec_core.loading.self_check import check_rows, make_exact
from specdec_core.model import score
from specdec_core.worker.model_runner import ModelRunner
from tests.tiny_models import (
    ARCHITECTURES,
    VOCAB,
    exact_model,
    packed_model,
    tiny_model,
)

pytestmark = pytest.mark.usefixtures("searched_once")

DTYPES = (torch.bfloat16, torch.float32)
_DECODERS = (*sorted(ARCHITECTURES), "fused llama")
"""Our own forward has the bits of the hooked one (test_fused_decoder.py): one of it will do."""


@pytest.fixture(scope="module", params=_DECODERS)
def decoder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def exact(request: pytest.FixtureRequest, decoder: str, searched_once: None) -> ModelRunner:
    model = packed_model(decoder, request.param)
    make_exact(model)
    return model


def logits_alone(model: ModelRunner, ids: list[int]) -> Tensor:
    """One token after the other, [len(ids), V]."""
    slot = model.allocate()
    rows = [score(model, [(slot, [token], 1)]) for token in ids]
    model.free(slot)
    return torch.cat(rows)


@pytest.mark.covering(1)
@pytest.mark.parametrize("seed", range(3))
def test_bits_do_not_depend_on_batch_or_chunks(exact: ModelRunner, seed: int) -> None:
    """Up to 32 rows in passes of random chunks, some rolled back and fed again."""
    rng = random.Random(seed)
    lengths = [rng.choice([2, 30, 64, 70, 129]) for _ in range(rng.choice([2, 9, 32]))]
    sequences = [[rng.randrange(VOCAB) for _ in range(length)] for length in lengths]
    judged = rng.sample(range(len(sequences)), 2)
    expected = {index: logits_alone(exact, sequences[index]) for index in judged}
    slots = [exact.allocate() for _ in sequences]
    while any(exact.cached_len(s) < len(ids) for s, ids in zip(slots, sequences, strict=True)):
        feeds, places = [], []
        for index, (slot, ids) in enumerate(zip(slots, sequences, strict=True)):
            start = exact.cached_len(slot)
            count = min(rng.choice([0, 1, 1, 3, 9, 40]), len(ids) - start)
            if count:
                feeds.append((slot, ids[start : start + count], count))
                places += [(index, start + i) for i in range(count)]
        logits = score(exact, feeds) if feeds else torch.empty(0)
        for row, (index, place) in enumerate(places):
            if index in expected:
                assert torch.equal(logits[row], expected[index][place]), (index, place)
        again = rng.randrange(len(slots))
        exact.rollback(slots[again], max(exact.cached_len(slots[again]) - rng.choice([0, 5]), 0))
        if rng.random() < 0.05:
            exact.rollback(slots[again], 0)
    for slot in slots:
        exact.free(slot)


def test_float32_logits_are_those_of_transformers() -> None:
    model = packed_model("llama", torch.float32)
    reference = tiny_model("llama")
    make_exact(model)
    ids = list(range(3, 60))
    with torch.inference_mode():
        expected = reference(input_ids=torch.tensor([ids])).logits[0]
    slot = model.allocate()
    torch.testing.assert_close(score(model, [(slot, ids, len(ids))]), expected)


def sees_its_company(plain):  # type: ignore[no-untyped-def]
    """A forward whose rows change by a rounding when they are not alone."""

    def forward(input: Tensor) -> Tensor:
        output: Tensor = plain(input)
        return output * (1 + 2**-7) if input.numel() > input.shape[-1] else output

    return forward


def test_a_row_that_sees_its_company_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = packed_model("llama", torch.bfloat16)
    norm = model.module.model.layers[1].input_layernorm
    monkeypatch.setattr(norm, "forward", sees_its_company(norm.forward))
    with pytest.raises(NotExactError, match=r"layers\.1\.input_layernorm \(LlamaRMSNorm\)"):
        make_exact(model)
    assert model.numerics is Numerics.FAST
    assert not any(isinstance(module, ExactLinear) for module in model.module.modules())


def test_in_our_own_forward_it_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model = packed_model("fused llama", torch.bfloat16)
    norm = model.module.layers[1].mlp_norm
    monkeypatch.setattr(norm, "forward", sees_its_company(norm.forward))
    with pytest.raises(NotExactError, match=r"layers\.1\.mlp_norm \(RMSNorm\)"):
        make_exact(model)


def test_attention_that_sees_its_company_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = packed_model("llama", torch.bfloat16)
    make_exact(model)
    attend = ragged_attention.attend_rows

    def sees_other_rows(query: Tensor, key: Tensor, *rest: object) -> Tensor:
        return attend(query, key, *rest) * (1 + 2**-7 * (key.shape[0] > 1))  # type: ignore[arg-type]

    monkeypatch.setattr(ragged_attention, "attend_rows", sees_other_rows)
    with pytest.raises(NotExactError, match="attention"):
        check_rows(model)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.nightly)]
)
def test_bits_of_long_rows_do_not_depend_on_their_chunks(dtype: torch.dtype) -> None:
    """More keys than a kernel reads at once, and as many as make it sum them in another order."""
    model = exact_model(
        "llama",
        dtype,
        hidden_size=576,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        max_position_embeddings=2048,
        initializer_range=0.2,
    )
    rng = random.Random(0)
    for length in (330, 460, 599, 1334):
        ids = [rng.randrange(VOCAB) for _ in range(length)]
        expected = logits_in_chunks(model, ids, [512] * 3)
        for size in (30, 333):
            chunks = [rng.randint(1, size) for _ in range(length)]
            assert torch.equal(logits_in_chunks(model, ids, chunks), expected)


def logits_in_chunks(model: ModelRunner, ids: list[int], sizes: list[int]) -> Tensor:
    """Return the logits of the ids, [len(ids), V]."""
    slot, rows = model.allocate(), []
    for size in sizes:
        chunk = ids[model.cached_len(slot) :][:size]
        rows += [score(model, [(slot, chunk, len(chunk))])] if chunk else []
    model.free(slot)
    return torch.cat(rows)


def test_attention_is_called_in_its_shapes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = packed_model("llama", torch.float32)
    ids = list(range(3, 60))
    slot = model.allocate()
    expected = score(model, [(slot, ids, len(ids))])
    attention = AttentionShape(queries=SizeRange(3, 8), key_lens=(128,))
    model.class_table = ClassTable(linears=(), attention=attention)
    attend = ragged_attention.attend_rows
    shapes: list[tuple[int, int]] = []

    def recording(query: Tensor, key: Tensor, *rest: Any) -> Tensor:
        shapes.append((query.shape[0] // key.shape[0], key.shape[2]))
        return attend(query, key, *rest)

    monkeypatch.setattr(ragged_attention, "attend_rows", recording)
    model.rollback(slot, 0)
    first = score(model, [(slot, ids[:40], 40), (model.allocate(), ids[:1], 1)])[:40]
    rest = [score(model, [(slot, [token], 1)]) for token in ids[40:]]
    torch.testing.assert_close(torch.cat([first, *rest]), expected)
    assert {queries for queries, _ in shapes} == {3, 8}
    assert {num_keys for _, num_keys in shapes} == {128}


def test_auto_falls_back_with_a_warning_and_exact_refuses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = packed_model("qwen3", torch.bfloat16)
    norm = model.module.model.norm
    monkeypatch.setattr(norm, "forward", sees_its_company(norm.forward))
    with caplog.at_level(logging.WARNING):
        apply_numerics(model, Numerics.AUTO)
    assert model.numerics is Numerics.FAST
    assert "model.norm (Qwen3RMSNorm)" in caplog.text
    with pytest.raises(NotExactError):
        apply_numerics(model, Numerics.EXACT)


def test_fast_numerics_asks_nothing() -> None:
    model = packed_model("llama", torch.float32)
    apply_numerics(model, Numerics.FAST)
    assert model.class_table is None


def test_without_classes_a_row_does_see_its_company() -> None:
    """The promise is not empty: the same model in fast numerics breaks it."""
    torch.manual_seed(0)
    weights = tiny_model("llama", hidden_size=512, intermediate_size=1536, num_attention_heads=8)
    model = ModelRunner(weights, vocab_size=VOCAB, kv_cache_tokens=4096)
    with pytest.raises(NotExactError):
        check_rows(model)
