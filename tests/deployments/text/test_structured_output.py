"""From what callers say of structured output to grammars, and what a compiled one answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.text.grammar_library import try_grammar
from deployments.text.grammars import Compiler
from deployments.text.lark_source import over_bytes
from deployments.text.structured_output import (
    ANY_OBJECT,
    choice,
    from_response_format,
    from_structured_outputs,
    json_schema,
    lark,
    regex,
)
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec
from tests.deployments.http_server import completion, server
from tests.service.tiny_folder import save_tiny_llama

pytest.importorskip("llguidance")

from tests.deployments.text.walks import matcher_of

WORDS = GrammarSpec(GrammarKind.REGEX, "(ab|ac|b)+d?")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(str(save_tiny_llama(tmp_path_factory.mktemp("tiny"))))


@pytest.fixture(scope="module")
def compiler(text: TextModel) -> Compiler:
    return Compiler(lambda: text)


def test_both_notations_mean_the_same() -> None:
    schema = {"type": "integer"}
    assert from_response_format({"type": "text"}) is None
    assert from_response_format({"type": "json_object"}) == ANY_OBJECT
    wrapped = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert from_response_format(wrapped) == json_schema(schema)
    like_llama_cpp = {"type": "json_object", "schema": schema}
    assert from_response_format(like_llama_cpp) == json_schema(schema)
    assert from_structured_outputs({"json": schema}) == json_schema(schema)
    assert from_structured_outputs({"json": '{"type": "integer"}'}) == json_schema(schema)
    assert from_structured_outputs({"json_object": True, "regex": None}) == ANY_OBJECT
    assert from_structured_outputs({"regex": "a+"}) == GrammarSpec(GrammarKind.REGEX, "a+")
    lark = GrammarSpec(GrammarKind.LARK, 'start: "a"')
    assert from_structured_outputs({"grammar": 'start: "a"'}) == lark
    assert from_structured_outputs({"choice": ["a"]}) == choice(["a"])
    harmless = {
        "disable_any_whitespace": True,
        "whitespace_pattern": None,
        "disable_fallback": True,
    }
    assert from_structured_outputs({"regex": "a"} | harmless) == regex("a")


SCHEMA = "response_format.json_schema"
DEEP: Any = []
for _ in range(120):
    DEEP = [DEEP]
REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "xml"}}, "got 'xml'", "response_format.type"),
    ({"response_format": {}}, "got None", "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "must be a JSON schema", f"{SCHEMA}.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}},
        "JSON schema",
        f"{SCHEMA}.schema",
    ),
    (
        {"response_format": {"type": "json_object", "schema": {"not": {"type": "null"}}}},
        "#/not is not supported",
        "response_format.schema",
    ),
    (
        {"response_format": {"type": "json_object", "json_schema": {"schema": {}}}},
        "response_format.json_schema does not apply here",
        SCHEMA,
    ),
    (
        {"response_format": {"type": "text", "schema": {}}},
        "response_format.schema does not apply here",
        "response_format.schema",
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {}, "strict": "yes"},
            }
        },
        "must be a bool",
        f"{SCHEMA}.strict",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [2**60]}}}},
        "#/enum/0 is 1152921504606846976, which cannot be enforced exactly",
        f"{SCHEMA}.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"items": DEEP}}}},
        "nested too deeply: the limit is 100",
        f"{SCHEMA}.schema",
    ),
    ({"structured_outputs": {}}, "exactly one of", "structured_outputs"),
    ({"structured_outputs": {"json_object": False}}, "exactly one of", "structured_outputs"),
    (
        {"structured_outputs": {"regex": "a", "choice": ["b"]}},
        "exactly one of",
        "structured_outputs",
    ),
    *(
        ({"structured_outputs": {"regex": "a", name: value}}, name, f"structured_outputs.{name}")
        for name, value in {
            "structural_tag": "{}",
            "whitespace_pattern": " ",
            "disable_additional_properties": True,
        }.items()
    ),
    *(
        ({"structured_outputs": {name: value}}, message, f"structured_outputs.{name}")
        for name, value, message in [
            ("regex", 3, "must be a string"),
            ("regex", "([", "cannot be read: unterminated character set"),
            ("regex", "(?=a)b", "a lookahead"),
            ("regex", "\ud800", "half of a surrogate pair"),
            ("grammar", "start: nothing", "unknown name"),
            ("grammar", 'start: x "c"\nx[max_tokens=3]: /b+/', "max_tokens is not supported"),
            ("grammar", f"start: %json {'[' * 90_000}", "nested too deeply"),
            ("choice", [], "choice is empty"),
            ("choice", ["a", ""], "non-empty"),
            ("choice", "ab", "list of non-empty strings"),
            ("json", "{", "not JSON"),
            ("json", "[" * 90_000, "nested too deeply: the limit is 100"),
            ("json", '{"items":' * 9_000, "nested too deeply"),
            ("json", '{"const": 1e400}', "outside the range"),
            ("json", [], "must be a JSON schema"),
            ("json", {"type": "nonsense"}, "nonsense"),
        ]
    ),
    (
        {"structured_outputs": {"choice": ["a", "\udc00"]}},
        "half of a surrogate pair",
        "structured_outputs.choice.1",
    ),
    ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "leave ignore_eos", ""),
    ({"structured_outputs": {"regex": "a"}, "min_tokens": 2}, "ignore_eos and min_tokens", ""),
    (
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "exclude each other",
        "",
    ),
]


async def test_what_cannot_be_a_grammar_is_refused_by_name() -> None:
    async with server() as (client, _):
        for fields, message, _ in REFUSALS:
            if "surrogate" in message:  # the whole body is refused before
                continue
            body = json.dumps(completion(**fields))
            headers = {"Content-Type": "application/json"}
            answer = await client.post("/v1/completions", content=body, headers=headers)
            assert answer.status_code == 400, (fields, answer.text)
            assert message in answer.json()["error"]["message"], (fields, answer.text)


def check(fields: dict[str, Any]) -> None:
    ((kind, given),) = fields.items()
    read = from_response_format if kind == "response_format" else from_structured_outputs
    spec = read(given)
    assert spec is not None
    try_grammar(spec)


@pytest.mark.parametrize(("fields", "message", "param"), [one for one in REFUSALS if one[2]])
def test_refusals_name_the_field(fields: dict[str, Any], message: str, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check(fields)
    assert message in str(refused.value)
    assert refused.value.param == param


def test_a_choice_may_have_thousands_of_texts(compiler: Compiler, text: TextModel) -> None:
    labels = [f"label {i}" for i in range(2000)]
    try_grammar(choice(labels))
    grammar = compiler(choice(labels))
    output: list[int] = []
    for token in text.encode_part("label 1999"):
        allowed = grammar.allowed(output)
        assert allowed is not None
        assert allowed[token]
        output.append(token)


@given(st.text(min_size=1, max_size=5))
def test_a_choice_is_any_text(label: str) -> None:
    matcher = matcher_of(choice(["other", label]))
    assert matcher.consume_tokens(list(label.encode()))
    assert matcher.is_accepting()


SPECIAL = 'start: "<[7]>" <[151668]> /<.>/ (<|im_end|> | <[1-5,900]>) %json {"const": "<[9]>"}'


def test_special_tokens_of_any_model_may_stand_in_a_grammar() -> None:
    """The tokenizer of the check has 262 IDs only."""
    try_grammar(lark(SPECIAL))
    assert over_bytes(SPECIAL) == (
        'start: "<[7]>" <[256]> /<.>/ (<[256]> | <[256]>) %json {"const": "<[9]>"}'
    )


async def test_a_grammar_reaches_the_replicas() -> None:
    async with server() as (client, parts):
        asked = [
            {"response_format": {"type": "text"}},
            {"response_format": {"type": "json_object"}},
            {"structured_outputs": {"choice": ["a", "b"]}},
        ]
        for fields in asked:
            answer = await client.post("/v1/completions", json=completion(**fields))
            assert answer.status_code == 200, answer.text
        seen = [rules.params.grammar for rules in parts.replicas["t0"].rules_seen]
        assert seen == [None, ANY_OBJECT, choice(["a", "b"])]


def test_too_long_a_grammar_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="the limit is max_grammar_chars=200000"):
        try_grammar(GrammarSpec(GrammarKind.REGEX, "a" * 200_001))


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=6), max_size=8))
def test_an_answer_depends_on_the_output_alone(
    compiler: Compiler, text: TextModel, asked: list[list[str]]
) -> None:
    """Whatever was asked before: forward, back, aside, behind what does not conform."""
    used = compiler(WORDS)
    for letters in asked:
        output = [i for letter in letters for i in text.encode_part(letter)]
        assert used.allowed(output) == compiler(WORDS).allowed(output)


def test_end_ids_are_allowed_where_the_output_may_end(compiler: Compiler, text: TextModel) -> None:
    grammar = compiler(WORDS)
    a, b, c, d = (text.encode_part(letter)[0] for letter in "abcd")

    def may_end(*output: int) -> set[bool]:
        allowed = grammar.allowed(output)
        assert allowed is not None
        return {bool(allowed[i]) for i in text.end_token_ids}

    assert may_end() == may_end(a) == {False}
    assert may_end(a, b) == may_end(b, d) == {True}
    allowed = grammar.allowed((a,))
    assert allowed is not None
    assert (bool(allowed[b]), bool(allowed[c]), bool(allowed[d])) == (True, True, False)
    assert grammar.allowed((a, d)) is None
    assert grammar.allowed((b, min(text.end_token_ids), b)) is None


def test_a_grammar_that_is_too_complex_allows_nothing_and_says_so(
    compiler: Compiler, text: TextModel
) -> None:
    """It can be read; that it is too much shows when the first id is taken."""
    spec = GrammarSpec(GrammarKind.REGEX, "(a?){1000}a{1000}")
    try_grammar(spec)
    grammar = compiler(spec)
    a = text.encode_part("a")[0]
    assert grammar.allowed(()) is not None
    assert grammar.failure is None
    for output in ((a,), (a, a), ()):
        assert not any(grammar.allowed(output) or b"")
    assert grammar.failure is not None
    assert grammar.failure.startswith("structured output: ")
    assert "\n" not in grammar.failure
    assert compiler(spec).failure is None


def test_the_library_is_asked_for_by_name_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(InvalidRequestError, match=r"pip install '\.\[grammar\]'"):
        try_grammar(WORDS)


def test_the_tokenizer_is_read_once_and_only_for_a_grammar(text: TextModel, tmp_path: Path) -> None:
    reads = []

    def load() -> TextModel:
        reads.append(1)
        return text

    compiler = Compiler(load)
    assert not reads
    for _ in range(3):
        compiler(WORDS)
    compiler.begin()
    assert len(reads) == 1


def test_a_model_without_an_end_starts_and_refuses_grammars(text: TextModel) -> None:
    """llguidance raises ValueError for it, which ended a replica as it started."""
    endless = Compiler(lambda: replace(text, end_token_ids=frozenset()))
    endless.begin()
    with pytest.raises(InvalidRequestError, match="needs a model with an end-of-sequence token"):
        endless(WORDS)
