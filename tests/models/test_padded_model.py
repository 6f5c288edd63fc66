"""A left-padded batch gives the logits of the in-place cache: to the bit in exact numerics."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from specdec_core.algorithms.padded.model import PaddedTransformersModel
from specdec_core.layers.attention.metadata import ANY_ATTENTION
from specdec_core.layers.packed_linear import pack_linears
from specdec_core.loading.self_check import make_exact
from specdec_core.model import ForwardInput, score
from specdec_core.stopwatch import Stopwatch
from specdec_core.worker.model_runner import ModelRunner
from tests.models.cuda_graphs.by_hand import BY_HAND
from tests.models.exact_table import keep_to_classes
from tests.tiny_models import ARCHITECTURES, VOCAB, tiny_decoder

pytestmark = pytest.mark.usefixtures("searched_once")

PROMPT_LENS = (5, 150, 33, 1, 70)


def loaded(
    decoder: str, dtype: torch.dtype, max_tokens_per_pass: int, **options: Any
) -> ModelRunner:
    weights = tiny_decoder(decoder, dtype, initializer_range=0.05)
    pack_linears(weights)
    return ModelRunner(
        weights,
        vocab_size=VOCAB,
        kv_cache_tokens=4096,
        max_tokens_per_pass=max_tokens_per_pass,
        **options,
    )


def both_logits(model: ModelRunner, num_rounds: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same rounds over both caches: ragged proposals, rejections and realignment."""
    rng = random.Random(0)
    padded = PaddedTransformersModel(model)
    ids = [[rng.randrange(VOCAB) for _ in range(length)] for length in PROMPT_LENS]
    kv = padded.new_batch(PROMPT_LENS)
    padded.forward(kv, ForwardInput.of([(row, row_ids[:-1], 0) for row, row_ids in enumerate(ids)]))
    slots = [model.allocate() for _ in ids]
    score(model, [(slot, row_ids[:-1], 0) for slot, row_ids in zip(slots, ids, strict=True)])
    for _ in range(num_rounds):
        drafts = [[rng.randrange(VOCAB) for _ in range(rng.randint(0, 5))] for _ in ids]
        fed = [[row_ids[-1], *draft] for row_ids, draft in zip(ids, drafts, strict=True)]
        yield (
            padded.forward(
                kv, ForwardInput.of([(row, tokens, len(tokens)) for row, tokens in enumerate(fed)])
            ).logits,
            score(model, [(s, tokens, len(tokens)) for s, tokens in zip(slots, fed, strict=True)]),
        )
        for row, draft in enumerate(drafts):
            ids[row] += [*draft[: rng.randint(0, len(draft))], rng.randrange(VOCAB)]
            kv.rollback(row, len(ids[row]) - 1)
            model.rollback(slots[row], len(ids[row]) - 1)
        kv.realign(range(len(ids)), [len(row_ids) for row_ids in ids])
    for slot in slots:
        model.free(slot)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("decoder", [*ARCHITECTURES, "fused qwen3"])
def test_exact_logits_are_those_of_the_in_place_cache(decoder: str, dtype: torch.dtype) -> None:
    """The prompts do not fit into one pass, so that chunks differ too."""
    model = loaded(decoder, dtype, max_tokens_per_pass=64)
    make_exact(model)
    for padded_logits, logits in both_logits(model, num_rounds=8):
        assert torch.equal(padded_logits, logits)


def test_exact_logits_come_from_the_attention_over_blocks_where_there_is_one() -> None:
    """Two kernels would be two orders of sums."""
    model = loaded("fused qwen3", torch.float32, 64, block_attention=BY_HAND)
    keep_to_classes(model, ANY_ATTENTION)
    for padded_logits, logits in both_logits(model, num_rounds=2):
        assert torch.equal(padded_logits, logits)


@pytest.mark.covering(1)
@pytest.mark.parametrize("max_tokens_per_pass", [512, 40, 3])
@pytest.mark.parametrize("decoder", [*ARCHITECTURES, "fused qwen3"])
def test_fast_logits_are_close_to_those_of_the_in_place_cache(
    decoder: str, max_tokens_per_pass: int
) -> None:
    model = loaded(decoder, torch.float32, max_tokens_per_pass)
    for padded_logits, logits in both_logits(model, num_rounds=4):
        torch.testing.assert_close(padded_logits, logits, atol=1e-4, rtol=1e-4)


def test_rows_that_are_fed_nothing_stay_as_they_are() -> None:
    padded = PaddedTransformersModel(loaded("qwen2", torch.float32, max_tokens_per_pass=512))
    kv = padded.new_batch([3, 9, 4])
    padded.forward(kv, ForwardInput.of([(0, [1, 2], 0), (1, [5] * 8, 0), (2, [7, 8, 9], 0)]))
    before = padded.forward(kv, ForwardInput.of([(2, [6], 1)])).logits
    kv.rollback(2, 3)
    padded.forward(kv, ForwardInput.of([(0, [3, 3, 3], 3)]))
    torch.testing.assert_close(padded.forward(kv, ForwardInput.of([(2, [6], 1)])).logits, before)
    assert kv.cached_lens == [5, 8, 4]


@pytest.mark.parametrize("is_exact", [False, True])
def test_a_nan_in_one_row_reaches_no_other(is_exact: bool) -> None:
    """An overflow of one request, in the columns that the others are padded with."""
    model = loaded("qwen2", torch.bfloat16, max_tokens_per_pass=512)
    if is_exact:
        make_exact(model)
    padded = PaddedTransformersModel(model)
    kv = padded.new_batch([9, 4])
    padded.forward(kv, ForwardInput.of([(0, [5] * 8, 0), (1, [7, 8, 9], 0)]))
    before = padded.forward(kv, ForwardInput.of([(1, [6], 1)])).logits
    kv.rollback(1, 3)
    for layer in range(kv.shape.num_layers):
        for pool in kv.pools(layer):
            pool[: kv.num_columns] = torch.nan
    after = padded.forward(kv, ForwardInput.of([(0, [3], 1), (1, [6], 1)])).logits
    assert after[0].isnan().all()
    torch.testing.assert_close(after[1:], before, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("is_exact", [False, True])
def test_the_view_is_timed_in_exact_numerics_and_not_needed_in_fast(is_exact: bool) -> None:
    model = loaded("llama", torch.bfloat16, max_tokens_per_pass=512)
    if is_exact:
        make_exact(model)
    padded = PaddedTransformersModel(model)
    padded.forward(padded.new_batch([4]), ForwardInput.of([(0, [1, 2, 3], 1)]))
    assert (padded.view_s > 0) == is_exact


def test_a_stopwatch_adds_up_its_stages() -> None:
    watch = Stopwatch(torch.device("cpu"))
    with watch:
        torch.randn(100, 100).sort()
    once = watch.seconds
    assert once > 0
    with watch:
        torch.randn(100, 100).sort()
    assert watch.seconds > once


@pytest.mark.gpu
def test_a_stopwatch_on_a_gpu_counts_device_time_without_waiting() -> None:
    device = torch.device("cuda")
    watch = Stopwatch(device)
    matrix = torch.randn(4096, 4096, device=device)
    for _ in range(300):
        with watch:
            matrix @ matrix
    assert watch.seconds > 300 * 2 * 4096**3 / 2e15
