"""EQSPEC and EXSPEC on tiny real architectures: generate() in float32, and exact numerics."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel

from specdec_core import Request, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.layers.packed_linear import pack_linears
from specdec_core.loading.self_check import make_exact
from specdec_core.worker.model_runner import ModelRunner
from tests.equivalence import test_exact as exact
from tests.equivalence import test_models as tiny
from tests.equivalence.test_fakes import scheduler_config
from tests.equivalence.test_padded import PADDED, checked
from tests.tiny_models import ARCHITECTURES, reference_greedy, tiny_model


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def weights(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param)


@pytest.mark.covering(1)
@pytest.mark.parametrize("algorithm", PADDED)
@pytest.mark.parametrize(("k", "batch"), [(1, 2), (4, 5), (8, 8)])
def test_greedy_output_of_a_tiny_model_equals_generate(
    weights: PreTrainedModel, algorithm: AlgorithmName, k: int, batch: int
) -> None:
    asked = tiny.requests(temperature=0.0)
    expected = [
        reference_greedy(weights, r.prompt_token_ids, r.params.max_tokens, tiny.STOP_IDS)
        for r in asked
    ]
    for method, draft in ((SpecMethod.NGRAM, None), (SpecMethod.DRAFT_MODEL, weights)):
        engine = tiny_engine(algorithm, weights, draft, method, k, batch)
        assert tiny.run(engine, asked) == expected
        assert engine.stats.num_accepted > 0


@pytest.mark.parametrize(
    ("weights", "algorithm"),
    [
        ("llama", AlgorithmName.EQSPEC),
        ("qwen3", AlgorithmName.EXSPEC_PADDED),
        *[
            pytest.param(name, algorithm, marks=pytest.mark.nightly)
            for name in sorted(ARCHITECTURES)
            for algorithm in PADDED
            if (name, algorithm)
            not in (("llama", AlgorithmName.EQSPEC), ("qwen3", AlgorithmName.EXSPEC_PADDED))
        ],
    ],
    indirect=["weights"],
)
def test_sampled_output_of_a_tiny_model_equals_plain_decoding(
    weights: PreTrainedModel, algorithm: AlgorithmName
) -> None:
    asked = tiny.requests(temperature=0.8)
    alone = SchedulerConfig(max_group_size=1, window=1)
    reference = Engine(tiny.adapted(weights), config=alone, algorithm=AlgorithmName.AUTOREGRESSIVE)
    expected = tiny.run(reference, asked)
    for method, draft in ((SpecMethod.NGRAM, None), (SpecMethod.DRAFT_MODEL, weights)):
        assert tiny.run(tiny_engine(algorithm, weights, draft, method, 4, 4), asked) == expected


def tiny_engine(
    algorithm: AlgorithmName,
    target: PreTrainedModel,
    draft: PreTrainedModel | None,
    method: SpecMethod,
    k: int,
    batch: int,
) -> Engine:
    return Engine(
        tiny.adapted(target),
        tiny.adapted(draft) if draft else None,
        config=checked(scheduler_config(method, k, batch)),
        algorithm=algorithm,
    )


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("algorithm", [*PADDED, AlgorithmName.EXSPEC])
def test_exact_numerics_keep_ids_and_logprobs_to_the_bit(
    algorithm: AlgorithmName, dtype: torch.dtype
) -> None:
    weights = tiny_model("qwen2", initializer_range=0.05).to(dtype)
    pack_linears(weights)
    model = tiny.adapted(weights)
    make_exact(model)
    asked = [
        replace(r, params=replace(r.params, num_logprobs=2), end_token_ids=frozenset())
        for temperature in (0.0, 0.8)
        for r in named(tiny.requests(temperature, count=6), f"T={temperature}")
    ]
    alone = SchedulerConfig(max_group_size=1, window=1)
    expected = everything(
        Engine(model, config=alone, algorithm=AlgorithmName.AUTOREGRESSIVE), asked
    )
    draft = ModelRunner(weights, vocab_size=tiny.VOCAB, kv_cache_tokens=8192)
    for method, k, batch in ((SpecMethod.NGRAM, 4, 8), (SpecMethod.DRAFT_MODEL, 3, 5)):
        config = checked(scheduler_config(method, k, batch))
        uses_draft = method is SpecMethod.DRAFT_MODEL
        engine = Engine(model, draft if uses_draft else None, config=config, algorithm=algorithm)
        assert everything(engine, asked) == expected
        assert engine.stats.num_accepted > 0
        assert (engine.stats.aligned_bytes > 0) == (algorithm in PADDED)
        assert (engine.stats.seconds.get("view", 0.0) > 0) == (algorithm in PADDED)


def named(requests: list[Request], prefix: str) -> list[Request]:
    return [replace(r, request_id=f"{prefix} {r.request_id}") for r in requests]


def everything(engine: Engine, asked: list[Request]) -> dict[str, list[object]]:
    """Ids and log-probabilities of every request."""
    told: dict[str, list[object]] = {request.request_id: [] for request in asked}
    for event in engine.generate(asked):
        assert len(event.logprobs) == len(event.token_ids)
        told[event.request_id] += zip(event.token_ids, event.logprobs, strict=True)
    return told


@pytest.mark.thorough
@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
@pytest.mark.parametrize(
    ("algorithm", "batch", "k"), zip(PADDED, (32, 5), (8, 3), strict=True), ids=PADDED
)
def test_exact_numerics_survive_random_arrivals_and_aborts(
    algorithm: AlgorithmName, batch: int, k: int, architecture: str, dtype: torch.dtype
) -> None:
    model = exact.loaded(architecture, dtype, kv_cache_tokens=16384)
    make_exact(model)
    asked = exact.requests(12)
    expected = exact.plain(model, asked)
    rng = random.Random(2)
    config = checked(scheduler_config(SpecMethod.NGRAM, k, batch))
    engine = Engine(model, config=config, algorithm=algorithm)
    waiting, aborted = list(asked), set()
    tokens: dict[str, list[int]] = {request.request_id: [] for request in asked}
    while waiting or engine.has_work:
        if waiting and rng.random() < 0.6:
            engine.add_request(waiting.pop())
        name = rng.choice(asked).request_id
        if rng.random() < 0.1 and tokens[name] and engine.abort(name):
            aborted.add(name)
        for event in engine.step():
            tokens[event.request_id] += event.token_ids
    assert len(aborted) < len(asked)
    for name, ids in expected.items():
        assert tokens[name] == (ids[: len(tokens[name])] if name in aborted else ids)
