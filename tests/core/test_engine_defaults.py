"""What an engine does when little is said: who drafts, and where requests end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_core import (
    Engine,
    Request,
    SamplingParams,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.errors import ModelNotSupportedError
from specdec_core.request import FinishReason
from tests.fakes import NoisyCopy, TokenListModel

TARGET = TokenListModel(seed=1)
PROMPT = (1, 2, 3)


def answer(engine: Engine, **params: bool) -> tuple[list[int], FinishReason | None]:
    """Ids of a greedy request that has no end ids of its own."""
    sampling = SamplingParams(temperature=0, max_tokens=24, **params)
    request = Request(request_id="a", prompt_token_ids=PROMPT, params=sampling)
    events = list(engine.generate([request]))
    return [i for event in events for i in event.token_ids], events[-1].finish_reason


def test_a_draft_that_is_given_drafts() -> None:
    engine = Engine(TARGET, NoisyCopy(TARGET, 10_000))
    ids, _ = answer(engine, ignore_eos=True)
    assert ids == answer(Engine(TARGET), ignore_eos=True)[0]
    assert engine.stats.seconds["draft"] > 0.0


def test_without_a_draft_prompt_lookup_drafts() -> None:
    engine = Engine(TARGET)
    assert len(answer(engine)[0]) == 24
    assert engine.stats.seconds["draft"] == 0.0


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.NONE])
def test_a_draft_for_a_method_that_uses_none_is_refused(method: SpecMethod) -> None:
    config = SchedulerConfig(speculation=SpeculationConfig(method=method))
    with pytest.raises(ModelNotSupportedError, match=f"method {method} never uses one"):
        Engine(TARGET, NoisyCopy(TARGET, 2), config=config)


def test_a_request_without_end_ids_ends_at_those_of_the_model() -> None:
    plain, _ = answer(Engine(TARGET), ignore_eos=True)
    end = plain[5]
    engine = Engine(TARGET, end_token_ids=frozenset({end}))
    assert answer(engine) == (plain[: plain.index(end) + 1], FinishReason.STOP)
    assert answer(engine, ignore_eos=True) == (plain, FinishReason.LENGTH)


def test_end_ids_of_a_request_stand_for_the_model_s() -> None:
    plain, _ = answer(Engine(TARGET), ignore_eos=True)
    engine = Engine(TARGET, end_token_ids=frozenset({plain[0]}))
    params = SamplingParams(temperature=0, max_tokens=24)
    request = Request(request_id="a", prompt_token_ids=PROMPT, params=params)
    own = replace(request, end_token_ids=frozenset({plain[8]}))
    ids = [i for event in engine.generate([own]) for i in event.token_ids]
    assert ids == plain[: plain.index(plain[8]) + 1]
