"""Whole generations with passes of fixed shape forced on a CPU: the ids of the ragged passes."""

from __future__ import annotations

import random

import pytest

from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.config import DRAFT_MODEL_METHODS, KPolicyName
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.self_check import make_exact
from specdec_core.worker.model_runner import ModelRunner
from tests.models.cuda_graphs.models import fixed, ragged
from tests.models.cuda_graphs.recorders import JudgingRecorder
from tests.tiny_models import VOCAB

pytestmark = pytest.mark.usefixtures("searched_once")

GREEDY = {"temperature": 0.0}
SAMPLED = {"temperature": 0.8, "top_p": 0.95}
HOT = {"temperature": 1.3}
METHODS = (SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL)


def requests(settings: dict[str, float]) -> list[Request]:
    rng = random.Random(0)
    return [
        Request(
            request_id=str(number),
            prompt_token_ids=tuple(rng.randrange(VOCAB) for _ in range(length)),
            params=SamplingParams(max_tokens=24, seed=number, **settings),
        )
        for number, length in enumerate((3, 50, 17, 90, 8, 31, 64))
    ]


def generate(
    target: ModelRunner,
    draft: ModelRunner | None,
    settings: dict[str, float],
    method: SpecMethod = SpecMethod.NONE,
) -> dict[str, list[int]]:
    config = SchedulerConfig(
        max_group_size=4,
        window=5,
        prefill_chunk=32,
        speculation=SpeculationConfig(
            method=method, num_draft_tokens=4, k_policy=KPolicyName.FIXED
        ),
    )
    plain = method is SpecMethod.NONE
    algorithm = AlgorithmName.AUTOREGRESSIVE if plain else AlgorithmName.EXSPEC
    engine = Engine(target, draft, config=config, algorithm=algorithm)
    answers: dict[str, list[int]] = {}
    for event in engine.generate(requests(settings)):
        answers.setdefault(event.request_id, []).extend(event.token_ids)
    return answers


@pytest.mark.covering(1)
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED, HOT], ids=["greedy", "top-p", "hot"])
@pytest.mark.parametrize("decoder", ["fused qwen3", "glm4"])
def test_every_algorithm_emits_the_ids_of_plain_ragged_decoding(
    decoder: str, settings: dict[str, float]
) -> None:
    expected = generate(ragged(decoder), None, settings)
    recorder = JudgingRecorder()
    assert generate(fixed(decoder, recorder), None, settings) == expected
    assert recorder.num_replayed > 10
    for method in METHODS:
        draft = fixed(decoder) if method in DRAFT_MODEL_METHODS else None
        assert generate(fixed(decoder), draft, settings, method) == expected, method


def test_a_draft_that_is_the_target_is_always_right() -> None:
    config = SchedulerConfig(
        max_group_size=4,
        window=4,
        speculation=SpeculationConfig(
            method=SpecMethod.DRAFT_MODEL, num_draft_tokens=4, k_policy=KPolicyName.FIXED
        ),
    )
    engine = Engine(fixed("fused llama"), fixed("fused llama"), config=config)
    list(engine.generate(requests(GREEDY)))
    assert engine.stats.num_drafted == engine.stats.num_accepted > 50


@pytest.mark.thorough
def test_exact_numerics_are_checked_and_kept_in_the_passes_that_serve() -> None:
    recorder = JudgingRecorder()
    model = fixed("fused llama", recorder)
    make_exact(model)
    assert recorder.num_replayed > 5, "the check itself ran in fixed shapes"
    expected = generate(ragged("fused llama"), None, GREEDY)
    assert generate(model, None, GREEDY, SpecMethod.NGRAM) == expected
