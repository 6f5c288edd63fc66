"""The adapter against transformers itself: the same ids and logits, however the tokens were fed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_core import Request, SamplingParams
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError, OutOfBlocksError
from specdec_core.model import CachedModel, score
from specdec_core.worker.model_runner import ModelRunner
from tests.tiny_models import (
    ARCHITECTURES,
    DECODERS,
    VOCAB,
    architecture_of,
    reference_greedy,
    tiny_decoder,
    tiny_model,
)

PROMPT_LENS = (1, 2, 15, 16, 17, 33, 64, 65, 90)


@pytest.fixture(scope="module", params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stock(decoder: str) -> PreTrainedModel:
    """The model as transformers runs it, never adapted."""
    return tiny_model(architecture_of(decoder))


def adapted(decoder: str, **limits: Any) -> ModelRunner:
    limits = {"kv_cache_tokens": 4096} | limits
    return ModelRunner(tiny_decoder(decoder), vocab_size=VOCAB, **limits)


def prompt(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(1000 * seed + length)
    return [rng.randrange(VOCAB) for _ in range(length)]


def full_logits(stock: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """Logits at every place of `ids`, from one forward without a cache."""
    with torch.no_grad():
        return stock(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0].float()


def greedy(
    model: CachedModel, prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[list[int]]:
    """All prompts side by side, one token a pass."""
    slots = [model.allocate() for _ in prompts]
    feeds: list[Sequence[int]] = list(prompts)
    emitted: list[list[int]] = [[] for _ in prompts]
    for _ in range(max_tokens):
        logits = score(model, [(s, f, 1) for s, f in zip(slots, feeds, strict=True)])
        feeds = [[token] for token in logits[:, :VOCAB].argmax(-1).tolist()]
        for tokens, feed in zip(emitted, feeds, strict=True):
            tokens += feed
    return emitted


@cache
def generated(architecture: str) -> list[list[int]]:
    """Behind every prompt; of both forwards of an architecture."""
    stock = tiny_model(architecture)
    return [reference_greedy(stock, prompt(length), 40) for length in PROMPT_LENS]


def test_greedy_ids_of_a_ragged_batch_equal_generate(decoder: str) -> None:
    prompts = [prompt(length) for length in PROMPT_LENS]
    assert greedy(adapted(decoder), prompts, 40) == generated(architecture_of(decoder))


@pytest.mark.covering(1)
@pytest.mark.parametrize("max_tokens_per_pass", [5, 512])
def test_any_interleaving_of_feeds_and_rollbacks_gives_the_full_forwards_logits(
    decoder: str, stock: PreTrainedModel, max_tokens_per_pass: int
) -> None:
    rng = random.Random(max_tokens_per_pass)
    model = adapted(decoder, max_tokens_per_pass=max_tokens_per_pass)
    ids_of: dict[int, list[int]] = {}
    for _ in range(60):
        if len(ids_of) < 6 and rng.random() < 0.5:
            ids_of[model.allocate()] = []
        if ids_of and rng.random() < 0.1:
            slot = rng.choice(list(ids_of))
            model.free(slot)
            del ids_of[slot]
        for slot, ids in ids_of.items():
            if rng.random() < 0.4:
                length = rng.randint(0, len(ids) + 3)
                model.rollback(slot, length)
                del ids[length:]
            assert model.cached_len(slot) == len(ids)
        check_feeds(model, stock, ids_of, rng)
        blocks = sum(-(-len(ids) // 16) for ids in ids_of.values())
        assert model.num_free_blocks == model.num_blocks - blocks


def check_feeds(
    model: ModelRunner,
    stock: PreTrainedModel,
    ids_of: dict[int, list[int]],
    rng: random.Random,
) -> None:
    feeds, expected = [], [torch.empty(0, VOCAB)]
    for slot in rng.sample(list(ids_of), rng.randint(0, len(ids_of))):
        count = rng.choice([0, 1, 1, 2, 5, 16, 17, 17, 40])
        tokens = [rng.randrange(VOCAB) for _ in range(count)]
        num_logits = rng.choice([0, min(1, count), count])
        feeds.append((slot, tokens, num_logits))
        ids_of[slot] += tokens
        if num_logits:
            expected.append(full_logits(stock, ids_of[slot])[-num_logits:])
    torch.testing.assert_close(score(model, feeds), torch.cat(expected), atol=1e-4, rtol=1e-4)


def test_out_of_blocks_leaves_everything_unchanged(decoder: str) -> None:
    model = adapted(decoder, kv_cache_tokens=64)
    first, second = model.allocate(), model.allocate()
    before = score(model, [(first, prompt(20), 1), (second, prompt(10), 1)])
    with pytest.raises(OutOfBlocksError):
        score(model, [(first, prompt(20), 1), (second, prompt(20), 1)])
    assert (model.cached_len(first), model.cached_len(second)) == (20, 10)
    assert model.num_free_blocks == 1
    model.rollback(first, 19)
    model.rollback(second, 9)
    feeds = [(first, prompt(20)[19:], 1), (second, prompt(10)[9:], 1)]
    torch.testing.assert_close(score(model, feeds), before, atol=1e-4, rtol=1e-4)


def test_a_pass_that_raises_leaves_everything_unchanged(
    decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = adapted(decoder, max_tokens_per_pass=8)
    slot = model.allocate()
    score(model, [(slot, prompt(12), 1)])
    with pytest.raises(IndexError):
        score(model, [(slot, [1] * 30 + [VOCAB + 1], 1)])
    assert model.cached_len(slot) == 12
    assert model.num_free_blocks == model.num_blocks - 1


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_the_adapted_model_stays_usable_by_generate(architecture: str) -> None:
    stock = tiny_model(architecture)
    shared = tiny_model(architecture)
    model = ModelRunner(shared, vocab_size=VOCAB, kv_cache_tokens=4096)
    asked = prompt(20)
    expected = reference_greedy(stock, asked, 10)
    assert reference_greedy(shared, asked, 10) == expected
    assert greedy(model, [asked], 10) == [expected]
    assert reference_greedy(shared, asked, 10) == expected


def test_a_model_whose_weights_are_shared_by_two_adapters_keeps_their_slots_apart(
    decoder: str, stock: PreTrainedModel
) -> None:
    shared = tiny_decoder(decoder)
    draft = ModelRunner(shared, vocab_size=VOCAB, kv_cache_tokens=512)
    target = ModelRunner(shared, vocab_size=VOCAB, kv_cache_tokens=512)
    score(draft, [(draft.allocate(), prompt(40), 1)])
    assert greedy(target, [prompt(9)], 10) == [reference_greedy(stock, prompt(9), 10)]


def test_long_feeds_of_a_pass_share_their_attention() -> None:
    """Equal long feeds, unequal long feeds and short ones in one pass."""
    stock = tiny_model("llama")
    model = adapted("llama")
    prompts = [prompt(40, s) for s in range(3)] + [prompt(70), prompt(3), prompt(9)]
    logits = score(model, [(model.allocate(), p, 2) for p in prompts])
    expected = torch.cat([full_logits(stock, p)[-2:] for p in prompts])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_vocab_size_is_the_tokenizers_and_max_model_len_the_models() -> None:
    model = ModelRunner(tiny_model("llama"), vocab_size=90, kv_cache_tokens=160)
    assert model.vocab_size == 90
    assert model.max_model_len == 512
    assert (model.num_blocks, model.kv_cache_spec.block_size) == (10, 16)


def test_absurd_limits_are_named() -> None:
    with pytest.raises(InvalidRequestError, match=r"max_model_len must be in 1..512, got 513"):
        adapted("llama", max_model_len=513)
    with pytest.raises(InvalidRequestError, match="kv_cache_tokens must be at least 1, got 0"):
        adapted("llama", kv_cache_tokens=0)


def test_a_nan_in_freed_blocks_reaches_nobody() -> None:
    """Masked keys are read: each weighs 0, but 0 * NaN is NaN."""
    model = adapted("llama")
    for layer in range(model.cache_shape.num_layers):
        for pool in model._kv.pools(layer):
            pool.fill_(torch.nan)
    slot = model.allocate()
    for tokens in (prompt(5), prompt(1)):
        assert not score(model, [(slot, tokens, 1)]).isnan().any()


def test_the_cache_holds_at_least_the_tokens_that_it_was_made_for() -> None:
    """A sequence of the greatest length fits, though blocks do not divide it."""
    model = adapted("llama", max_model_len=100, kv_cache_tokens=100)
    params = SamplingParams(temperature=0.0, max_tokens=97)
    request = Request(request_id="a", prompt_token_ids=(3, 4, 5), params=params)
    assert len(list(Engine(model, algorithm=AlgorithmName.AUTOREGRESSIVE).tokens(request))) == 97


def test_a_model_outside_the_attention_interface_is_refused() -> None:
    class Silent(torch.nn.Module):
        def forward(self, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
            return torch.zeros_like(hidden_states), None

    broken = tiny_model("llama")
    broken.model.layers[1].self_attn = Silent()
    with pytest.raises(ModelNotSupportedError, match="1 of 2 layers"):
        ModelRunner(broken, vocab_size=VOCAB, kv_cache_tokens=64)
