"""Structured output with real grammars: answers conform, and are those of plain decoding."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from deployments.text.grammar_workers import GrammarThreads, Workers
from deployments.text.grammars import Compiler
from deployments.text.structured_output import choice, json_schema
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core import (
    FinishReason,
    Request,
    SamplingParams,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.config import KPolicyName, Numerics
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec
from specdec_core.loading.loader import LoadConfig, LoadedModel, load_model
from tests.decoding import fixed_k
from tests.service.tiny_folder import save_tiny_llama

pytest.importorskip("llguidance")

PLAIN = AlgorithmName.AUTOREGRESSIVE
SPECULATIVE = [name for name in AlgorithmName if name is not PLAIN]
Answers = dict[str, tuple[list[int], FinishReason]]
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["quick", "lazy"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "tags": {"type": "array", "items": {"enum": ["fox", "dog"]}, "maxItems": 2},
    },
    "required": ["kind", "count", "tags"],
    "additionalProperties": False,
}
PATTERN = r"(the )?(quick|lazy) (brown )*fox: [0-9]{2,4}( jumps over){1,3}\."
CHOICES = ["yes", 'no, "never"', "日本語 🙂", "yes, but"]
SPECS = {
    "schema": json_schema(SCHEMA),
    "regex": GrammarSpec(GrammarKind.REGEX, PATTERN),
    "choice": choice(CHOICES),
    "lark": GrammarSpec(GrammarKind.LARK, 'start: "(" start ")" | "x" "y"?'),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def text(folder: Path) -> TextModel:
    return load_text_model(str(folder))


@pytest.fixture(scope="module")
def target(folder: Path) -> LoadedModel:
    return load_model(str(folder), LoadConfig(kv_cache_tokens=8192, numerics=Numerics.EXACT))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    noisy = save_tiny_llama(tmp_path_factory.mktemp("draft"), noise=0.002)
    return load_model(str(noisy), LoadConfig(kv_cache_tokens=8192, numerics=Numerics.FAST))


def requests(text: TextModel, temperature: float) -> list[Request]:
    """Every grammar twice, and two requests without any among them."""
    specs = [*SPECS.items(), ("none", None)] * 2
    return [
        Request(
            request_id=f"{name}.{place}",
            prompt_token_ids=text.encode(f"The dog {place} says "),
            params=SamplingParams(
                temperature=temperature, seed=place, max_tokens=200, grammar=spec
            ),
            end_token_ids=text.end_token_ids,
        )
        for place, (name, spec) in enumerate(specs)
    ]


def answers(engine: Engine, asked: list[Request]) -> Answers:
    ids: dict[str, list[int]] = {request.request_id: [] for request in asked}
    reasons = {}
    for event in engine.generate(asked):
        ids[event.request_id] += event.token_ids
        assert event.finish_reason is not FinishReason.ERROR, event.error
        if event.finish_reason is not None:
            reasons[event.request_id] = event.finish_reason
    return {key: (ids[key], reasons[key]) for key in ids}


def engine(
    target: LoadedModel,
    text: TextModel,
    name: AlgorithmName,
    draft: LoadedModel | None = None,
    batch: int = 4,
    workers: Workers | None = None,
) -> Engine:
    method = SpecMethod.NGRAM if draft is None else SpecMethod.HYBRID
    return Engine(
        target.model,
        draft.model if draft else None,
        config=SchedulerConfig(
            max_group_size=batch,
            window=3 * batch,
            speculation=fixed_k(method, 4),
        ),
        algorithm=name,
        end_token_ids=text.end_token_ids,
        grammars=Compiler(lambda: text, workers=workers),
    )


@pytest.fixture(scope="module")
def alone(target: LoadedModel, text: TextModel) -> Callable[[float], Answers]:
    """Answers to `requests` at a temperature, by plain decoding one at a time."""
    return cache(lambda t: answers(engine(target, text, PLAIN, batch=1), requests(text, t)))


def check(name: str, shown: str) -> None:
    if name == "schema":
        jsonschema.validate(json.loads(shown), SCHEMA)
        assert json.dumps(json.loads(shown), ensure_ascii=False) == shown
    elif name == "regex":
        assert re.fullmatch(PATTERN, shown)
    elif name == "choice":
        assert shown in CHOICES
    elif name == "lark":
        assert re.fullmatch(r"\(*xy?\)*", shown)
        assert shown.count("(") == shown.count(")")


@pytest.mark.thorough
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_plain_answers_conform(target: LoadedModel, text: TextModel, temperature: float) -> None:
    ended = set()
    plain = answers(engine(target, text, PLAIN), requests(text, temperature))
    for key, (ids, reason) in plain.items():
        name = key.split(".")[0]
        if name != "none" and reason is FinishReason.STOP:
            check(name, text.decode(ids))
            ended.add(name)
    assert ended >= {"schema", "choice"}


@pytest.mark.thorough
@pytest.mark.covering(1)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("name", SPECULATIVE)
def test_speculation_changes_no_structured_answer(
    target: LoadedModel,
    draft: LoadedModel,
    text: TextModel,
    alone: Callable[[float], Answers],
    name: AlgorithmName,
    drafts: bool,
    temperature: float,
) -> None:
    speculating = engine(target, text, name, draft if drafts else None)
    assert answers(speculating, requests(text, temperature)) == alone(temperature)
    assert speculating.stats.num_accepted > 0


@pytest.mark.parametrize("drafts", [False, True])
def test_grammars_that_are_computed_by_other_threads_change_no_answer(
    target: LoadedModel,
    draft: LoadedModel,
    text: TextModel,
    alone: Callable[[float], Answers],
    drafts: bool,
) -> None:
    """As in a service, whose passes leave out rows that are not ready."""
    twin = draft if drafts else None
    served = engine(target, text, AlgorithmName.EXSPEC, twin, workers=GrammarThreads())
    assert answers(served, requests(text, 0.8)) == alone(0.8)


@pytest.mark.thorough
def test_a_draft_proposes_only_what_the_grammar_allows(
    target: LoadedModel, text: TextModel, alone: Callable[[float], Answers]
) -> None:
    """A draft that is the target itself is then always right, grammar or not."""
    asked = requests(text, 0.8)
    twin = engine(target, text, AlgorithmName.EXSPEC, target)
    twin_answers = answers(twin, asked)
    assert twin_answers == alone(0.8)
    model_only = Engine(
        target.model,
        target.model,
        config=SchedulerConfig(
            speculation=SpeculationConfig(method=SpecMethod.DRAFT_MODEL, k_policy=KPolicyName.FIXED)
        ),
        end_token_ids=text.end_token_ids,
        grammars=Compiler(lambda: text),
    )
    assert answers(model_only, asked) == twin_answers
    assert model_only.stats.num_accepted >= 0.9 * model_only.stats.num_drafted


def test_a_resumed_request_goes_on_within_its_grammar(
    target: LoadedModel, text: TextModel, alone: Callable[[float], Answers]
) -> None:
    asked = [r for r in requests(text, 0.8) if r.params.grammar is not None]
    whole = alone(0.8)
    half = [
        replace(r, emitted_token_ids=tuple(whole[r.request_id][0][:3]))
        for r in asked
        if len(whole[r.request_id][0]) > 3
    ]
    rest = answers(engine(target, text, AlgorithmName.EXSPEC), half)
    assert half
    for request in half:
        ids, reason = whole[request.request_id]
        assert rest[request.request_id] == (ids[3:], reason)


def test_an_engine_without_a_compiler_refuses(target: LoadedModel, text: TextModel) -> None:
    bare = Engine(target.model, end_token_ids=text.end_token_ids)
    with pytest.raises(InvalidRequestError, match="not supported here"):
        bare.add_request(requests(text, 0.0)[0])


@pytest.mark.parametrize("name", AlgorithmName)
def test_a_grammar_that_fails_ends_its_own_request_alone(
    target: LoadedModel,
    text: TextModel,
    alone: Callable[[float], Answers],
    name: AlgorithmName,
) -> None:
    """Its output never goes on without the grammar."""
    too_much = GrammarSpec(GrammarKind.REGEX, "(a?){1000}a{1000}")
    asked = requests(text, 0.0)[:3]
    broken = replace(
        asked[0], request_id="broken", params=replace(asked[0].params, grammar=too_much)
    )
    errors: dict[str, str] = {}
    ids: dict[str, list[int]] = {request.request_id: [] for request in (*asked, broken)}
    for event in engine(target, text, name).generate([broken, *asked]):
        ids[event.request_id] += event.token_ids
        if event.finish_reason is FinishReason.ERROR:
            errors[event.request_id] = event.error or ""
    assert [*errors] == ["broken"]
    assert "structured output: " in errors["broken"]
    assert set(text.decode(ids["broken"])) <= {"a"}
    assert all(ids[r.request_id] == alone(0.0)[r.request_id][0] for r in asked)
