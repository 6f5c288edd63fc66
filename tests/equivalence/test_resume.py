"""Real models: a request that is resumed at any place ends with the ids and log-probabilities that
it would have ended with, and a wrong id is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deployments.text.grammars import Compiler
from deployments.text.structured_output import json_schema
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core import (
    FinishReason,
    Request,
    SamplingParams,
    SchedulerConfig,
    SpecMethod,
)
from specdec_core.config import Numerics
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.loader import LoadConfig, LoadedModel, load_model
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import ErrorKind, TokenEvent
from tests.decoding import fixed_k
from tests.service.tiny_folder import save_tiny_llama

LENGTH = 28
Answer = tuple[list[int], list[TokenLogprobs], FinishReason]
KINDS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=LENGTH),
    "sampled": SamplingParams(temperature=0.8, seed=5, max_tokens=LENGTH),
    "filtered": SamplingParams(temperature=0.8, top_p=0.9, top_k=40, seed=6, max_tokens=LENGTH),
    "logprobs": SamplingParams(temperature=0.8, seed=7, num_logprobs=3, max_tokens=LENGTH),
    "penalties": SamplingParams(
        temperature=0.8, seed=8, repetition_penalty=1.2, presence_penalty=0.5, max_tokens=LENGTH
    ),
}
GRAMMAR = json_schema(
    {
        "type": "object",
        "properties": {"kind": {"enum": ["quick", "lazy"]}, "count": {"type": "integer"}},
        "required": ["kind", "count"],
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def text(folder: Path) -> TextModel:
    return load_text_model(str(folder))


@pytest.fixture(scope="module")
def target(folder: Path) -> LoadedModel:
    return load_model(str(folder), LoadConfig(kv_cache_tokens=65536, numerics=Numerics.EXACT))


def engine(
    target: LoadedModel, text: TextModel, algorithm: AlgorithmName = AlgorithmName.EXSPEC
) -> Engine:
    speculation = fixed_k(SpecMethod.NGRAM, 4)
    config = SchedulerConfig(max_group_size=8, window=16, prefill_chunk=16, speculation=speculation)
    return Engine(
        target.model,
        config=config,
        algorithm=algorithm,
        end_token_ids=text.end_token_ids,
        grammars=Compiler(lambda: text),
    )


def request(text: TextModel, params: SamplingParams, name: str = "r") -> Request:
    prompt = text.encode("The quick brown fox jumps over the lazy dog and says ")
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        params=params,
        end_token_ids=text.end_token_ids,
    )


def answers(engine: Engine, asked: list[Request]) -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    ids: dict[str, list[int]] = {one.request_id: [] for one in asked}
    logprobs: dict[str, list[TokenLogprobs]] = {one.request_id: [] for one in asked}
    for event in engine.generate(asked):
        name = event.request_id
        ids[name] += event.token_ids
        logprobs[name] += event.logprobs
        if event.finish_reason is not None:
            assert event.finish_reason is not FinishReason.ERROR, event.error
            found[name] = ids[name], logprobs[name], event.finish_reason
    return found


@pytest.mark.parametrize("kind", [*KINDS, "grammar"])
def test_resumed_at_every_place(target: LoadedModel, text: TextModel, kind: str) -> None:
    if kind == "grammar":
        pytest.importorskip("llguidance")
        params = SamplingParams(temperature=0.8, seed=9, max_tokens=LENGTH, grammar=GRAMMAR)
    else:
        params = KINDS[kind]
    asked = request(text, params)
    plain = answers(engine(target, text, AlgorithmName.AUTOREGRESSIVE), [asked])["r"]
    resumed = [
        replace(asked, request_id=str(count), resume_token_ids=tuple(plain[0][:count]))
        for count in range(len(plain[0]) + 1)
    ]
    found = answers(engine(target, text), resumed)
    assert len(found) == len(resumed)
    for answer in found.values():
        assert answer == plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_id_is_found_wherever_it_stands(
    target: LoadedModel, text: TextModel, kind: str
) -> None:
    asked = request(text, KINDS[kind])
    ids = answers(engine(target, text), [asked])["r"][0]
    wrong = []
    for place in range(len(ids)):
        spoilt = [*ids]
        spoilt[place] = 17 if ids[place] != 17 else 18
        wrong.append(replace(asked, request_id=str(place), resume_token_ids=tuple(spoilt)))
    last: dict[str, TokenEvent] = {}
    checking = engine(target, text)
    for event in checking.generate(wrong):
        last[event.request_id] = event
    assert len(last) == len(ids)
    for name, event in last.items():
        assert event.error_kind is ErrorKind.INVALID
        assert event.error is not None
        assert f"at position {name} is not" in event.error
    assert not checking.has_work


def test_the_other_algorithms_say_that_they_check_nothing(
    target: LoadedModel, text: TextModel
) -> None:
    asked = replace(request(text, KINDS["greedy"]), resume_token_ids=(1,))
    for algorithm in set(AlgorithmName) - {AlgorithmName.EXSPEC}:
        with pytest.raises(InvalidRequestError, match="requires the algorithm exspec"):
            engine(target, text, algorithm).add_request(asked)
