"""Exact numerics end to end: speculation, batches, aborts and preemption never change an id.

bfloat16 is where it counts: there a different batch flips a token every few hundred.
"""

from __future__ import annotations

import random
from functools import lru_cache

import pytest
import torch

from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.self_check import make_exact
from specdec_core.worker.model_runner import ModelRunner
from tests.decoding import answer_ids, fixed_k
from tests.tiny_models import ARCHITECTURES, VOCAB, packed_model

DTYPES = (torch.bfloat16, torch.float32)
CELLS = [(1, 1), (2, 15), (5, 4), (8, 2), (32, 3)]
"""(batch size, K)"""
_DECODERS = (*sorted(ARCHITECTURES), "fused llama")
_FEW = [("fused llama", torch.bfloat16), ("qwen3", torch.bfloat16), ("llama", torch.float32)]
_TARGETS = [
    *[(name, torch.bfloat16) for name in _DECODERS],
    *[(name, torch.float32) for name in ("llama", "fused llama")],
    *[
        pytest.param((name, torch.float32), marks=pytest.mark.nightly)
        for name in _DECODERS
        if "llama" not in name
    ],
]


def loaded(decoder: str, dtype: torch.dtype, kv_cache_tokens: int) -> ModelRunner:
    """A model whose best choices are close together, so that a changed bit soon shows."""
    return packed_model(decoder, dtype, kv_cache_tokens, initializer_range=0.05)


@pytest.fixture(scope="module", params=_TARGETS)
def target(request: pytest.FixtureRequest) -> ModelRunner:
    model = loaded(*request.param, kv_cache_tokens=16384)
    make_exact(model)
    return model


def requests(count: int) -> list[Request]:
    rng = random.Random(4)
    return [
        Request(
            request_id=str(index),
            prompt_token_ids=tuple(
                rng.randrange(VOCAB) for _ in range(rng.choice([3, 17, 17, 62, 90]))
            ),
            params=SamplingParams(
                temperature=index % 3 * 0.4, seed=index, max_tokens=rng.randrange(4, 40)
            ),
        )
        for index in range(count)
    ]


def plain(model: ModelRunner, asked: list[Request]) -> dict[str, list[int]]:
    return {request.request_id: _alone(model, request) for request in asked}


@lru_cache(maxsize=64)  # of a target or two: the tests of one follow each other
def _alone(model: ModelRunner, request: Request) -> list[int]:
    config = SchedulerConfig(max_group_size=1, window=1)
    engine = Engine(model, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE)
    return answer_ids(engine, [request])[request.request_id]


def speculating(model: ModelRunner, draft: ModelRunner | None, batch: int, k: int) -> Engine:
    method = SpecMethod.DRAFT_MODEL if draft else SpecMethod.NGRAM
    config = SchedulerConfig(
        max_group_size=batch,
        window=2 * batch,
        prefill_chunk=33,
        speculation=fixed_k(method, k),
    )
    return Engine(model, draft, config=config)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("batch", "k"), CELLS)
def test_speculation_equals_plain_decoding_of_each_alone(
    target: ModelRunner, batch: int, k: int
) -> None:
    asked = requests(max(6, batch))
    expected = plain(target, asked)
    draft = loaded(target.module.config.model_type, target.dtype, kv_cache_tokens=16384)
    for engine in (speculating(target, None, batch, k), speculating(target, draft, batch, k)):
        assert answer_ids(engine, asked) == expected
        assert engine.stats.num_accepted > 0


@pytest.mark.parametrize(
    "target",
    [
        *_FEW,
        *[
            pytest.param((name, dtype), marks=pytest.mark.nightly)
            for name in _DECODERS
            for dtype in DTYPES
            if (name, dtype) not in _FEW
        ],
    ],
    indirect=True,
)
def test_random_arrivals_and_aborts_change_nothing(target: ModelRunner) -> None:
    asked = requests(16)
    expected = plain(target, asked)
    rng = random.Random(1)
    engine = speculating(target, None, 5, 4)
    waiting, aborted = list(asked), set()
    tokens: dict[str, list[int]] = {request.request_id: [] for request in asked}
    while waiting or engine.has_work:
        if waiting and rng.random() < 0.4:
            engine.add_request(waiting.pop())
        live = [name for name, ids in tokens.items() if ids and name not in aborted]
        if live and rng.random() < 0.03 and engine.abort(name := rng.choice(live)):
            aborted.add(name)
        for event in engine.step():
            tokens[event.request_id] += event.token_ids
    assert 0 < len(aborted) < len(asked)
    for name, ids in expected.items():
        if name in aborted:
            assert tokens[name] == ids[: len(tokens[name])]
        else:
            assert tokens[name] == ids


@pytest.mark.thorough
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.nightly)]
)
def test_preemption_and_replay_change_nothing(dtype: torch.dtype) -> None:
    """A cache that is too small for all: sequences leave it and come back, chunk by chunk."""
    model = loaded("qwen3", dtype, kv_cache_tokens=384)
    make_exact(model)
    asked = requests(12)
    expected = plain(model, asked)
    engine = speculating(model, None, 8, 4)
    preempted = 0
    tokens: dict[str, list[int]] = {request.request_id: [] for request in asked}
    for event in engine.generate(asked):
        tokens[event.request_id] += event.token_ids
        preempted += event.stats.num_preemptions if event.stats else 0
    assert preempted > 0
    assert tokens == expected
