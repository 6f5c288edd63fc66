"""Real architectures, tiny and random, in float32: speculation against transformers' generate()."""

from __future__ import annotations

import random

import pytest
from transformers import PreTrainedModel

from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.worker.model_runner import ModelRunner
from tests.decoding import answer_ids, fixed_k
from tests.tiny_models import ARCHITECTURES, VOCAB, reference_greedy, tiny_model

STOP_IDS = (2, 11)
some_targets = pytest.mark.parametrize(
    "target",
    [
        name if name in ("glm4", "qwen2") else pytest.param(name, marks=pytest.mark.nightly)
        for name in sorted(ARCHITECTURES)
    ],
    indirect=True,
)
"""All of them in `test_greedy_output_equals_generate`."""


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def target(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param)


def adapted(model: PreTrainedModel) -> ModelRunner:
    return ModelRunner(model, vocab_size=VOCAB, kv_cache_tokens=8192)


def prompts(count: int) -> list[tuple[int, ...]]:
    """Random prompts with the end id and the pad id inside."""
    rng = random.Random(1)
    lengths = [1, 2, 17, 17, 17, 40, 75]
    return [
        tuple(rng.choice([0, 2, *range(3, VOCAB)]) for _ in range(rng.choice(lengths)))
        for _ in range(count)
    ]


def requests(temperature: float, count: int = 12) -> list[Request]:
    return [
        Request(
            request_id=str(index),
            prompt_token_ids=prompt,
            params=SamplingParams(temperature=temperature, seed=index, max_tokens=8 + 3 * index),
            end_token_ids=frozenset(STOP_IDS),
        )
        for index, prompt in enumerate(prompts(count))
    ]


def run(engine: Engine, asked: list[Request]) -> list[list[int]]:
    return list(answer_ids(engine, asked).values())


def exspec(
    target: PreTrainedModel, draft: PreTrainedModel | None, method: SpecMethod, k: int, batch: int
) -> Engine:
    config = SchedulerConfig(
        max_group_size=batch,
        window=3 * batch,
        prefill_chunk=16,
        speculation=fixed_k(method, k),
    )
    return Engine(adapted(target), adapted(draft) if draft else None, config=config)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("k", "batch"), [(1, 1), (4, 5), (15, 3)])
def test_greedy_output_equals_generate(target: PreTrainedModel, k: int, batch: int) -> None:
    asked = requests(temperature=0.0)
    expected = [
        reference_greedy(target, r.prompt_token_ids, r.params.max_tokens, STOP_IDS) for r in asked
    ]
    for method, draft in ((SpecMethod.NGRAM, None), (SpecMethod.DRAFT_MODEL, target)):
        engine = exspec(target, draft, method, k, batch)
        assert run(engine, asked) == expected
        assert engine.stats.num_accepted > 0


@some_targets
def test_sampled_output_equals_plain_decoding_one_at_a_time(target: PreTrainedModel) -> None:
    asked = requests(temperature=0.8)
    plain = Engine(
        adapted(target),
        config=SchedulerConfig(max_group_size=1, window=1),
        algorithm=AlgorithmName.AUTOREGRESSIVE,
    )
    expected = run(plain, asked)
    for method, draft in ((SpecMethod.NGRAM, None), (SpecMethod.DRAFT_MODEL, target)):
        assert run(exspec(target, draft, method, 4, 4), asked) == expected


@some_targets
def test_a_greedy_self_draft_is_always_accepted(target: PreTrainedModel) -> None:
    asked = requests(temperature=0.0)
    engine = exspec(target, target, SpecMethod.DRAFT_MODEL, 4, 4)
    run(engine, asked)
    assert engine.stats.num_accepted > 0
    drafted_and_kept = engine.stats.num_accepted / engine.stats.num_drafted
    assert drafted_and_kept > 0.9, "only drafts behind a stop or a budget may be lost"
