"""In exact numerics the prefix cache hands out the bits that computing them would give."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.model import score
from specdec_core.worker.model_runner import ModelRunner
from tests.decoding import fixed_k
from tests.equivalence.test_fakes import outputs
from tests.tiny_models import VOCAB, exact_model


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32])
def exact(request: pytest.FixtureRequest, searched_once: None) -> ModelRunner:
    return exact_model("fused llama", request.param, 4096)


def requests_that_begin_alike(count: int) -> list[Request]:
    rng = random.Random(0)
    system = tuple(rng.randrange(VOCAB) for _ in range(150))
    return [
        Request(
            request_id=f"r{index}",
            prompt_token_ids=(
                *system[: rng.choice([40, 100, 150])],
                *(rng.randrange(VOCAB) for _ in range(rng.choice([1, 7]))),
            ),
            params=SamplingParams(
                temperature=rng.choice([0.0, 1.0]), seed=index, max_tokens=rng.choice([4, 20])
            ),
        )
        for index in range(count)
    ]


def numbers_of(model: ModelRunner, slot: int) -> Tensor:
    """Every key and value that the slot caches."""
    kv = model.prefix_cache
    assert kv is not None
    table = kv.block_table(slot)
    places = [table[i // 16] * 16 + i % 16 for i in range(kv.cached_len(slot))]
    pools = [pool for layer in range(kv.shape.num_layers) for pool in kv.pools(layer)]
    return torch.stack([pool[places] for pool in pools])


def numbers_alone(model: ModelRunner, ids: Sequence[int]) -> Tensor:
    """As if token after token had come, without company."""
    slot = model.allocate()
    for token in ids:
        score(model, [(slot, [token], 0)])
    numbers = numbers_of(model, slot)
    model.free(slot)
    return numbers


def test_answers_are_those_of_plain_decoding(exact: ModelRunner) -> None:
    requests = requests_that_begin_alike(12)
    speculation = fixed_k(SpecMethod.NGRAM, 3)
    config = SchedulerConfig(max_group_size=3, window=6, prefill_chunk=24, speculation=speculation)
    plain = Engine(exact, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE)
    assert outputs(Engine(exact, config=config), requests) == outputs(plain, requests)
    assert exact.num_free_blocks == exact.num_blocks


@pytest.mark.thorough
def test_adopted_keys_and_values_are_the_bits_of_computing_them_alone(
    exact: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came from chunks, proposals and prefills in company; alone it is token by token."""
    requests = requests_that_begin_alike(8)
    num_matched = 0
    known: dict[tuple[int, ...], Tensor] = {}
    kv = exact.prefix_cache
    assert kv is not None
    match_prefix = kv.match_prefix

    def compare(slot, ids, root):  # type: ignore[no-untyped-def]
        nonlocal num_matched
        before = kv.cached_len(slot)
        length = match_prefix(slot, ids, root)
        num_matched += length - before
        beginning = tuple(ids[:length])
        if beginning not in known:
            known[beginning] = numbers_alone(exact, beginning)
        assert torch.equal(numbers_of(exact, slot), known[beginning])
        return length

    monkeypatch.setattr(kv, "match_prefix", compare)
    config = SchedulerConfig(max_group_size=3, window=6, prefill_chunk=24)
    outputs(Engine(exact, config=config), requests)
    assert num_matched > 200


def test_the_bits_of_a_copy_are_those_of_the_shared_block(exact: ModelRunner) -> None:
    kv = exact.prefix_cache
    assert kv is not None
    ids = list(range(3, 35))
    first, second = exact.allocate(), exact.allocate()
    score(exact, [(first, ids, 0)])
    kv.publish(first, array("i", ids))
    assert kv.match_prefix(second, array("i", ids)) == 32
    exact.rollback(second, 20)
    rewritten = score(exact, [(second, [1, 2], 2)])
    alone = exact.allocate()
    assert torch.equal(rewritten, score(exact, [(alone, [*ids[:20], 1, 2], 2)]))
    exact.rollback(alone, 0)
    score(exact, [(alone, ids, 0)])
    assert torch.equal(numbers_of(exact, first), numbers_of(exact, alone))
    for slot in (first, second, alone):
        exact.free(slot)
