"""The law again, with a tiny transformer for a target, KV and all.

The logits behind every prefix come from transformers' own forward, one prefix at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch
from transformers import PreTrainedModel

from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.worker.model_runner import ModelRunner
from tests.decoding import answer_ids, fixed_k
from tests.distribution.chi_square import ChiSquare, goodness_of_fit, total
from tests.distribution.law import joint_law, window_law
from tests.distribution.runs import Counts
from tests.tiny_models import tiny_model

VOCAB = 6
PROMPTS = ((1, 2, 3, 4), (5, 4), (2, 0, 2, 0, 2))
NUM_TOKENS = 4
WINDOW = (1, 4)
"""Behind the first id, so that one round can decide it whole."""
NUM_SEEDS = 1200
SHAPED = SamplingParams(
    max_tokens=NUM_TOKENS,
    temperature=1.3,
    top_p=0.75,
    presence_penalty=0.8,
    logit_bias=((3, 1.0),),
)
SETTINGS = [
    (AlgorithmName.EXSPEC, SpecMethod.DRAFT_MODEL),
    pytest.param((AlgorithmName.EXSPEC, SpecMethod.NGRAM), marks=pytest.mark.nightly),
    pytest.param((AlgorithmName.EXSPEC_PADDED, SpecMethod.DRAFT_MODEL), marks=pytest.mark.nightly),
]


@cache
def target_weights() -> PreTrainedModel:
    return tiny_model("llama", vocab_size=VOCAB)


def draft_weights() -> PreTrainedModel:
    """The target with some noise in its head."""
    model = tiny_model("llama", vocab_size=VOCAB)
    head = model.get_output_embeddings().weight
    torch.manual_seed(1)
    head.data += 0.5 * head.data.std() * torch.randn_like(head)
    return model


@cache
def logits_of(ids: tuple[int, ...]) -> list[float]:
    with torch.inference_mode():
        values: list[float] = target_weights()(torch.tensor([ids])).logits[0, -1].tolist()
    return values


def adapted(weights: PreTrainedModel) -> ModelRunner:
    return ModelRunner(weights, vocab_size=VOCAB, kv_cache_tokens=16_384)


def engine_of(algorithm: AlgorithmName, method: SpecMethod) -> Engine:
    speculation = fixed_k(method, 3)
    config = SchedulerConfig(
        max_group_size=48, window=96, max_queued=10_000, speculation=speculation
    )
    draft = adapted(draft_weights()) if method is SpecMethod.DRAFT_MODEL else None
    return Engine(adapted(target_weights()), draft, config=config, algorithm=algorithm)


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda setting: "-".join(setting))
def counts(request: pytest.FixtureRequest) -> Counts:
    engine = engine_of(*request.param)
    requests = [
        Request(
            request_id=str(seed),
            prompt_token_ids=PROMPTS[seed % len(PROMPTS)],
            params=replace(SHAPED, seed=seed),
        )
        for seed in range(NUM_SEEDS)
    ]
    emitted = answer_ids(engine, requests)
    assert 0 < engine.stats.num_accepted < engine.stats.num_drafted
    outputs: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {p: Counter() for p in PROMPTS}
    for asked in requests:
        outputs[asked.prompt_token_ids][tuple(emitted[asked.request_id][slice(*WINDOW)])] += 1
    return outputs


def fit(counts: Counts, params: SamplingParams) -> ChiSquare:
    parts = []
    for prompt, outputs in counts.items():
        joint = joint_law(lambda ids: logits_of(tuple(ids)), prompt, params, num_tokens=NUM_TOKENS)
        parts.append(goodness_of_fit(outputs, window_law(joint, *WINDOW)))
    return total(parts)


def test_three_emitted_ids_have_the_enumerated_law(counts: Counts) -> None:
    result = fit(counts, SHAPED)
    assert not result.is_rejected, str(result)


def test_the_law_without_one_of_its_parts_is_rejected(counts: Counts) -> None:
    assert fit(counts, replace(SHAPED, top_p=1.0)).is_rejected
    assert fit(counts, replace(SHAPED, presence_penalty=0.0)).is_rejected
    assert fit(counts, replace(SHAPED, logit_bias=())).is_rejected
