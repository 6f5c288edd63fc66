"""Which format a model's answers are read in, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.choosing import Choice, ChosenBy, choose
from deployments.text.answers.parser_names import ALIASES, check_parser
from deployments.text.answers.reading import AnswerDelta, Answers
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from deployments.text.tokenizer import load_text_model
from specdec_core.errors import ModelNotSupportedError
from tests.service.tiny_folder import save_tiny_llama

_QWEN = """\
<|im_start|>system Calls: <tool_call>\\n{\\"name\\": <name>, "arguments": ...}\\n</tool_call>
{%- if '</think>' in content %}{{ content.split('</think>')[-1] }}{% endif %}"""
_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
_OWN: dict[str, Any] = {
    "start_anchor": "A:",
    "fields": {
        "thinking": {"open": "<plan>", "close": "</plan>"},
        "tool_calls": {
            "open_pattern": r"<call (?P<name>\w+)>",
            "close": "</call>",
            "repeats": True,
            "content": "json",
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
    },
}
_OWN_ANSWER = '<plan>how</plan>Yes.<call f>{"a": 1}</call>'


def _read(chosen: Any, text: str) -> AnswerDelta:
    reader = Answers(chosen.answer_format).reader("A:", _TOOLS)
    return reader.add(text) + reader.flush()


def test_the_chat_template_decides_if_nothing_else_does() -> None:
    chosen = choose(_QWEN)
    assert (chosen.calls.name, chosen.reasoning.name) == ("hermes", "qwen3")
    assert chosen.calls.chosen_by is chosen.reasoning.chosen_by is ChosenBy.CHAT_TEMPLATE
    assert str(chosen) == "tool calls: hermes, reasoning: qwen3 (from the chat template)"


def test_a_flag_wins_and_the_other_part_is_chosen_by_itself() -> None:
    chosen = choose(_QWEN, tool_call_parser="openai")
    assert chosen.calls.name == "openai"
    assert str(chosen) == (
        "tool calls: openai (by flag), reasoning: qwen3 (from the chat template)"
    )


def test_none_switches_reading_off() -> None:
    calls_only = choose(_QWEN, reasoning_parser="none")
    assert calls_only.answer_format is not None
    assert calls_only.answer_format.reasoning is None
    assert calls_only.answer_format.calls is not None
    neither = choose(_QWEN, _OWN, tool_call_parser="none", reasoning_parser="none")
    assert neither.answer_format is None
    assert str(neither) == "tool calls: none, reasoning: none (by flag)"


def test_a_template_without_a_known_format_chooses_none() -> None:
    chosen = choose("{{ messages[0].content }}")
    assert chosen.answer_format is None
    assert str(chosen) == (
        "tool calls: none, reasoning: none (the chat template shows no known format)"
    )


def test_a_format_that_is_not_read_is_named() -> None:
    chosen = choose("<function=f>{{ arguments | tojson }}</function>")
    assert chosen.answer_format is None
    assert chosen.calls.reason == "the chat template shows functionary, which is not supported"


def test_the_checkpoints_own_template_wins_over_the_chat_template() -> None:
    chosen = choose(_QWEN, _OWN)
    assert chosen.problem is None
    assert str(chosen) == (
        "tool calls: response_template, reasoning: response_template "
        "(from the checkpoint's response_template)"
    )
    found = _read(chosen, _OWN_ANSWER)
    assert (found.content, found.reasoning, found.calls[0].name) == ("Yes.", "how", "f")
    assert chosen.answer_format is not None
    assert chosen.answer_format.calls is not None, "grammars need the texts of a call"


@pytest.mark.parametrize(
    ("flags", "text", "content", "reasoning", "num_calls"),
    [
        ({"reasoning_parser": "none"}, _OWN_ANSWER, "<plan>how</plan>Yes.", "", 1),
        ({"tool_call_parser": "none"}, _OWN_ANSWER, 'Yes.<call f>{"a": 1}</call>', "how", 0),
        (
            {"reasoning_parser": "qwen3"},
            "<think>how</think>Yes.<call f>{}</call>",
            "Yes.",
            "how",
            1,
        ),
        (
            {"tool_call_parser": "hermes"},
            '<plan>how</plan>Yes.<tool_call>{"name": "f", "arguments": {}}</tool_call>',
            "Yes.",
            "how",
            1,
        ),
    ],
)
def test_a_flag_replaces_one_part_of_the_own_template(
    flags: dict[str, str], text: str, content: str, reasoning: str, num_calls: int
) -> None:
    found = _read(choose("", _OWN, **flags), text)
    assert (found.content, found.reasoning, len(found.calls)) == (content, reasoning, num_calls)


def _own_pattern(pattern: Any) -> dict[str, Any]:
    field = {"content": "xml-inline", "content_args": {"tag_pattern": pattern}}
    calls = {**_OWN["fields"]["tool_calls"], **field}
    return {**_OWN, "fields": {"tool_calls": calls}}


@pytest.mark.parametrize(
    "broken",
    [
        "text",
        7,
        {},
        {"fields": {}},
        {**_OWN, "start_anchor": []},
        {**_OWN, "fields": {"x": 1}},
        _own_pattern("((("),
        _own_pattern("(?:<(?P<key>k)>(?P<value>.*?))"),
        _own_pattern(5),
    ],
)
def test_a_broken_own_template_is_named_and_not_used(broken: Any) -> None:
    chosen = choose(_QWEN, broken)
    assert chosen.problem
    assert (chosen.calls.name, chosen.reasoning.name) == ("hermes", "qwen3")


def test_content_marks_of_the_own_template_stay_beside_another_format() -> None:
    own = {**_OWN, "fields": {"content": {"open": "<say>", "close": "</say>"}}}
    chosen = choose(_QWEN, own)
    assert (chosen.calls.name, chosen.reasoning.name) == ("hermes", "qwen3")
    chosen = choose(_QWEN, {**own, "fields": {**own["fields"], **_OWN["fields"]}})
    found = _read(chosen, "<plan>how</plan><say>Yes.</say>")
    assert (found.content, found.reasoning) == ("Yes.", "how")


@pytest.mark.parametrize("option", ["tool_call_parser", "reasoning_parser"])
def test_an_unknown_name_is_refused_with_the_known_ones(option: str) -> None:
    known = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"}[option]
    message = f"'{known}x' is not a known format. Did you mean '{known}'.* auto, none, "
    with pytest.raises(ModelNotSupportedError, match=message):
        choose(_QWEN, **{option: known + "x"})


@pytest.mark.parametrize("name", sorted(CALL_FORMATS.keys() - {"llama3_json"}))
def test_a_template_with_the_marks_of_a_format_shows_it(name: str) -> None:
    """Llama's calls have no mark. Its templates show the format in words."""
    one = CALL_FORMATS[name]
    opening = one.opening.replace("{json_name}", '"f"').replace("{name}", "f")
    parameters = "" if one.parameters is None else one.parameters.opening + one.parameters.closing
    source = f"{one.before}{opening}{parameters}{one.closing}{one.after}"
    assert choose(source).calls == Choice(name, ChosenBy.CHAT_TEMPLATE)


@pytest.mark.parametrize("name", ["gemma4", "mistral", "openai_gptoss", "seed_oss"])
def test_a_template_with_the_marks_of_reasoning_shows_it(name: str) -> None:
    one = REASONING_FORMATS[name]
    chosen = choose(f"{one.opening}{{{{ message.reasoning }}}}{one.closing}")
    assert chosen.reasoning == Choice(name, ChosenBy.CHAT_TEMPLATE)


@pytest.mark.parametrize("option", ["tool_call_parser", "reasoning_parser"])
def test_vllms_other_names_are_aliases_of_formats_that_exist(option: str) -> None:
    known = {"tool_call_parser": CALL_FORMATS, "reasoning_parser": REASONING_FORMATS}[option]
    for alias, name in ALIASES[option].items():
        assert check_parser(option, alias) == name
        assert name in known
        assert alias not in known


def test_a_model_folder_decides(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    assert load_text_model(str(tmp_path)).answers is None
    (tmp_path / "chat_template.jinja").write_text(_QWEN)
    text = load_text_model(str(tmp_path))
    assert text.answers is not None
    assert text.formats.calls.name == "hermes"
    assert load_text_model(str(tmp_path), tool_call_parser="openai").formats.calls.name == "openai"
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"response_template": _OWN}))
    assert load_text_model(str(tmp_path)).formats.calls.name == "response_template"


def test_the_template_for_tools_shows_the_calls(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "chat_templates").mkdir()
    (tmp_path / "chat_templates" / "tool_use.jinja").write_text(_QWEN)
    assert load_text_model(str(tmp_path)).formats.calls.name == "hermes"
