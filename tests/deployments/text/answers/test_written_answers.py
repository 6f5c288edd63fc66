"""Every format reads what its models write, wherever the text is cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.reading import Begun
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from deployments.text.chat_rendering import compile_template
from tests.clients.dialects import DIALECTS, Dialect
from tests.deployments.text.answers.messages import ARGUMENTS, Message, found_in, read, written
from tests.deployments.text.answers.spoken import ONE_CALL, PAIRS, answers_of, spoken

OTHER = ("other", {})
PLAN = "plan\n\n2 < 3 <b> & ü"


def calls_for(form: str, *calls: tuple[str, Any]) -> tuple[tuple[str, Any], ...]:
    return calls[:1] if form in ONE_CALL else calls


def everything(form: str, arguments: Mapping[str, Any] = ARGUMENTS) -> Message:
    return Message("Sure.\n\n1 < 2", PLAN, calls_for(form, ("get_weather", arguments), OTHER))


def cuts(text: str) -> Iterator[list[str]]:
    """Yield the text whole, in every two parts, and letter by letter."""
    yield [text]
    yield list(text)
    yield from ([text[:place], text[place:]] for place in range(1, len(text)))


def test_every_format_is_tried() -> None:
    assert PAIRS.keys() == CALL_FORMATS.keys()
    assert {*PAIRS.values()} == REASONING_FORMATS.keys()


@pytest.mark.parametrize("form", PAIRS)
def test_an_answer_is_the_same_at_every_cut(form: str) -> None:
    message = everything(form, {"text": '"<ü>"\n}', "nested": {"a": [None, "}]"]}})
    for pieces in cuts(spoken(form, message)):
        assert read(answers_of(form), "", pieces) == message


@pytest.mark.parametrize("name", DIALECTS)
def test_a_chat_template_of_the_format_writes_what_is_read(name: str) -> None:
    dialect = DIALECTS[name]
    answers = answers_of(dialect.calls, dialect.reasoning)
    template = compile_template(dialect.template)
    form = everything(dialect.calls)
    for message in (form, Message("Sure.", PLAN), Message("", PLAN, form.calls), Message("Hi")):
        if not dialect.has_many_calls:
            message = Message(message.content, message.reasoning, message.calls[:1])
        as_json = message.as_json(reasoning_field="reasoning_content")
        prompt, text = written(template, as_json, [dialect.answer[0]], _ends(dialect))
        assert read(answers, prompt, [text]) == message
        assert read(answers, prompt, text) == message


def _ends(dialect: Dialect) -> list[str]:
    return [*dialect.ends]


TRANSCRIPTS = [
    (
        "glm47",
        "<think>plan</think>Sure.<tool_call>f<arg_key>a</arg_key><arg_value>1 < 2</arg_value>"
        "</tool_call><tool_call>g</tool_call>",
    ),
    (
        "glm45",
        "\n<think>plan</think>\nSure.\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1 < 2"
        "</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
    ),
    (
        "deepseek_v32",
        "<think>plan</think>Sure.\n\n<｜DSML｜function_calls>\n"
        '<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">1 < 2'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
        '<｜DSML｜invoke name="g">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    ),
    (
        "deepseek_v4",
        "<think>plan</think>Sure.\n\n<｜DSML｜tool_calls>\n"
        '<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">1 < 2'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
        '<｜DSML｜invoke name="g">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
    ),
    (
        "seed_oss",
        "<seed:think>plan</seed:think>\nSure.\n\n<seed:tool_call>\n<function=f>\n"
        "<parameter=a>1 < 2</parameter>\n</function>\n</seed:tool_call>\n"
        "<seed:tool_call>\n<function=g>\n</function>\n</seed:tool_call>",
    ),
    (
        "qwen3_coder",
        "<think>\nplan\n</think>\n\nSure.\n<function=f>\n<parameter=a>\n1 < 2\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>\n",
    ),
    (
        "mistral",
        '[THINK]plan[/THINK]Sure.[TOOL_CALLS] [{"name": "f", "arguments": {"a": "1 < 2"}, '
        '"id": "abcdef012"}, {"name": "g", "arguments": {}, "id": "abcdef013"}]\n',
    ),
    (
        "granite",
        '<think>plan</think>\n<response>Sure.</response><|tool_call|>[{"name": "f", "arguments": '
        '{"a": "1 < 2"}}, {"name": "g", "arguments": {}}]',
    ),
    (
        "granite",
        "Here's my thought process: plan Here's my response: Sure."
        '<tool_call>[{"name": "f", "arguments": {"a": "1 < 2"}}, {"name": "g"}]',
    ),
    (
        "llama3_json",
        '<think>plan</think>Sure. {"type": "function", "name": "f", "parameters": {"a": "1 < 2"}}\n'
        '{"type":"function","name": "g", "parameters": {}}',
    ),
    (
        "kimi_k2",
        "<think>plan</think>Sure.<|tool_calls_section_begin|><|tool_call_begin|>f:0"
        '<|tool_call_argument_begin|>{"a": "1 < 2"}<|tool_call_end|><|tool_call_begin|>g:1'
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        "llama3_json",
        '<think>plan</think>Sure. <|python_tag|>{"name": "f", "parameters": {"a": "1 < 2"}}; '
        '{"name": "g", "parameters": {}}',
    ),
]
"""Ways of writing that neither the stand-in templates nor the tables have."""


@pytest.mark.parametrize(("form", "text"), TRANSCRIPTS)
def test_a_transcript_is_read(form: str, text: str) -> None:
    message = Message("Sure.", "plan", (("f", {"a": "1 < 2"}), ("g", {})))
    for pieces in cuts(text):
        assert read(answers_of(form), "", pieces) == message


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALECTS)
def test_an_answer_is_the_same_at_token_boundaries(name: str, demo_model: Path) -> None:
    dialect = DIALECTS[name]
    tokenizer = Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    marks = dict.fromkeys([*dialect.special, *dialect.ends, *dialect.added])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in marks])
    message = everything(dialect.calls)
    text = spoken(dialect.calls, message)
    encoded = tokenizer.encode(text, add_special_tokens=False)
    bounds = [begin for begin, _ in encoded.offsets] + [len(text)]
    tokens = [text[begin:end] for begin, end in pairwise(bounds)]
    assert "".join(tokens) == text
    for size in (1, 2, 5):
        rounds = ["".join(tokens[i : i + size]) for i in range(0, len(tokens), size)]
        assert read(answers_of(dialect.calls), "", rounds) == message


@pytest.mark.parametrize("form", PAIRS)
def test_a_prompt_may_open_the_reasoning(form: str) -> None:
    message = everything(form)
    reasoning = REASONING_FORMATS[PAIRS[form]]
    text = spoken(form, message, opens_reasoning=False)
    openings = {reasoning.opening, reasoning.opening.strip()}
    for opening in openings if form != "gemma4" else [reasoning.opening]:
        prompt = f"<|im_start|>user\n{reasoning.opening}<|im_start|>assistant\n{opening}"
        reader = answers_of(form).reader(prompt)
        assert reader.begun is Begun.REASONING
        assert read(answers_of(form), prompt, text) == message


@pytest.mark.parametrize("form", [form for form in PAIRS if form != "openai"])
def test_a_prompt_may_close_the_reasoning(form: str) -> None:
    message = Message("Sure.", "", everything(form).calls)
    reasoning = REASONING_FORMATS[PAIRS[form]]
    prompt = f"<|im_start|>assistant\n{reasoning.opening}{reasoning.closing}"
    assert answers_of(form).reader(prompt).begun is Begun.CONTENT
    assert read(answers_of(form), prompt, spoken(form, message)) == message


@pytest.mark.parametrize("form", PAIRS)
def test_calls_in_the_reasoning_are_reasoning(form: str) -> None:
    inner = spoken(form, Message(calls=(OTHER,)))
    message = Message("Sure.", f"I call\n{inner}", calls_for(form, OTHER))
    for pieces in cuts(spoken(form, message)):
        assert read(answers_of(form), "", pieces) == message


@pytest.mark.parametrize("form", [form for form in PAIRS if form not in ONE_CALL])
def test_text_may_follow_calls(form: str) -> None:
    message = Message("Sure.", "", (OTHER, ("get_weather", {"text": "x"})))
    text = f"{spoken(form, message)}\n\nDone; 1 < 2\n"
    expected = Message("Sure.\nDone; 1 < 2\n", "", message.calls)
    for pieces in cuts(text):
        assert read(answers_of(form), "", pieces) == expected


@pytest.mark.parametrize("form", PAIRS)
def test_a_call_that_is_cut_is_content(form: str) -> None:
    message = Message("", "", (("get_weather", {"text": "some words", "count": 12}),))
    text = spoken(form, message)
    whole = text.rindex("12") + 2
    special = REASONING_FORMATS[PAIRS[form]].special_openings
    for end in range(1, whole):
        is_mark = "{" not in text[:end] and text.startswith(special, 0, end)
        assert read(answers_of(form), "", [text[:end]]) == Message("" if is_mark else text[:end])


@pytest.mark.timeout(30)
@pytest.mark.parametrize("form", PAIRS)
def test_a_broken_call_is_content(form: str) -> None:
    text = spoken(form, Message(calls=(("get_weather", {"count": 12}),)))
    parameters = CALL_FORMATS[form].parameters
    if parameters is None or parameters.quote:
        broken = text.replace("12", '12}] "x')
    else:
        tag = (parameters.other_opening or parameters.opening).replace("{key}", "count")
        broken = text.replace(tag, "count: ")
    for pieces in cuts(broken):
        assert read(answers_of(form), "", pieces) == Message(broken)


MARKS = sorted(
    {
        mark
        for form in CALL_FORMATS.values()
        for mark in (form.opening.partition("{")[0], form.closing, form.before, form.after)
        if mark.strip()
    }
)


@pytest.mark.parametrize("form", PAIRS)
def test_marks_within_a_string_are_a_part_of_it(form: str) -> None:
    parameters = CALL_FORMATS[form].parameters
    closing = parameters.closing.strip() or parameters.quote if parameters else None
    texts = [f"a {mark} b" for mark in MARKS if closing is None or closing not in mark]
    for text in texts:
        message = Message("Sure.", "", calls_for(form, ("get_weather", {"text": text}), OTHER))
        answer = spoken(form, message)
        assert read(answers_of(form), "", [answer]) == message
        assert read(answers_of(form), "", answer) == message


_KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
_NUMBERS = st.integers(-(10**12), 10**12) | st.floats(-1e6, 1e6)
_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="<>[]|"), max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("form", PAIRS)
@settings(max_examples=15)
@given(
    arguments=st.fixed_dictionaries(
        {},
        optional={
            "text": _TEXTS,
            "digits": st.from_regex(r"[0-9]{1,5}", fullmatch=True),
            "count": st.integers(-(10**20), 10**20),
            "flag": st.booleans(),
            "nothing": st.none() | st.integers(),
            "nested": st.dictionaries(_KEYS, _VALUES, max_size=3),
            "list": st.lists(_VALUES, max_size=3),
        },
    ),
    content=_TEXTS.map(str.strip),
)
@example(arguments={"text": "\n", "nested": {"a": "\\"}}, content="{}")
@example(arguments={"text": "{a:1,b:2}", "nested": {"c": ",d:None"}}, content="None")
@example(arguments={"text": '\\"', "list": ['\\\\"}', "]"]}, content='"')
def test_any_arguments_come_back(form: str, arguments: dict[str, Any], content: str) -> None:
    message = Message(content, "", (("get_weather", arguments),))
    (call,) = found_in(answers_of(form), "", [spoken(form, message)]).calls
    assert call.name == "get_weather"
    assert json.loads(call.arguments) == arguments
