"""Chat templates render as in transformers, and refuse what they would drop."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chat_templates import (
    CALL,
    CALLS,
    CASES,
    LONG_IDS,
    RESULT,
    RESULTS,
    TOOLS,
    main,
    verdict,
)
from benchmarks.chat_templates import theirs as theirs_of
from deployments.text import chat_rendering
from deployments.text.chat_messages import TemplateInput, checked_messages
from deployments.text.chat_rendering import compile_template, render
from deployments.text.tokenizer import load_text_model
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from tests.deployments.text.stand_ins import SOURCES, STAND_INS, VARIABLES
from tests.service.tiny_folder import save_tokenizer

SHOWS_ALL = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"


def given(*messages: dict[str, Any], **fields: Any) -> TemplateInput:
    if fields.get("continues_final_message"):
        fields["add_generation_prompt"] = False
    variables = VARIABLES | fields.pop("variables", {})
    return TemplateInput(messages=checked_messages(list(messages)), variables=variables, **fields)


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def refusal(name: str, template_input: TemplateInput) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        render(STAND_INS[name], template_input)
    return caught.value


@pytest.mark.parametrize("name", STAND_INS)
def test_stand_ins_render_as_in_transformers(name: str) -> None:
    template = STAND_INS[name]
    verdicts = {case.name: verdict(template.for_tools(case.tools), case.given()) for case in CASES}
    counts = Counter(told.partition(":")[0] for told in verdicts.values())
    assert counts["DIFFERENT"] == 0, verdicts
    assert counts["equal"] >= 3, verdicts


def test_the_folder_tool_tells_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 1
    (tmp_path / "plain.jinja").write_text(SOURCES["plain"][0])
    assert main([str(tmp_path)]) == 0
    assert "plain: " in capsys.readouterr().out
    (tmp_path / "broken.jinja").write_text("{% nonsense %}")
    assert main([str(tmp_path)]) == 1
    assert "DIFFERENT: the chat template is not valid" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["plain", "silent", "reasoning", "null content", "one call"])
def test_a_developer_is_the_system_where_the_template_has_no_such_role(name: str) -> None:
    said, question = "Never say no.", user("May I?")
    as_developer = render(STAND_INS[name], given({"role": "developer", "content": said}, question))
    as_system = render(STAND_INS[name], given({"role": "system", "content": said}, question))
    assert as_developer == as_system
    assert said in as_developer


def test_a_template_that_knows_the_developer_is_given_one() -> None:
    source = SHOWS_ALL + "{% if messages[0].role == 'developer' %}!{% endif %}"
    message = {"role": "developer", "content": "x"}
    assert render(compile_template(source), given(message)) == "<developer>x</>!"


LOST = [
    ("silent", [user("x"), {"role": "critic", "content": "Wrong."}], "messages.1.content"),
    ("silent", [user("x"), {"role": "tool", "content": "20"}], "messages.1.content"),
    ("silent", [user("x"), CALL, RESULT], "messages.1.tool_calls.0"),
    ("channels", [user("x"), {"role": "system", "content": "Stop."}], "messages.1.content"),
    (
        "null content",
        [{"role": "system", "content": one} for one in ("First.", "Second.")] + [user("x")],
        "messages.0.content",
    ),
]


@pytest.mark.parametrize(("name", "messages", "param"), LOST)
def test_what_a_template_drops_is_refused_by_its_field(
    name: str, messages: list[dict[str, Any]], param: str
) -> None:
    error = refusal(name, given(*messages))
    assert error.param == param
    assert "does not show" in str(error)


@pytest.mark.parametrize("name", ["silent", "alternating", "trimming", "plain"])
def test_tools_that_a_template_drops_are_refused(name: str) -> None:
    source = compile_template(SOURCES[name][0])
    with pytest.raises(InvalidRequestError, match="the model's chat template knows none") as caught:
        render(source, given(user("x"), tools=TOOLS))
    assert caught.value.param == "tools.0"


def test_tools_may_come_in_a_variable_of_the_template() -> None:
    source = "{% for t in xml_tools %}{{ t.function.name }} {% endfor %}{{ messages[0].content }}"
    shown = given(user("x"), tools=TOOLS, variables={"xml_tools": TOOLS})
    assert render(compile_template(source), shown) == "weather population x"


def test_a_template_that_reads_only_the_beginning_of_an_answer_loses_its_end() -> None:
    template = compile_template("{% for m in messages %}{{ m.content[:99] }}{% endfor %}")
    assert render(template, given(user("short"))) == "short"
    with pytest.raises(InvalidRequestError, match=r"messages\.0\.content"):
        render(template, given(user("long" * 30)))


def test_reasoning_may_be_dropped_and_answers_may_lose_theirs() -> None:
    answer = {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4", "reasoning": "2 + 2"}
    prompt = render(STAND_INS["null content"], given(user("2 + 2?"), answer, user("And 3?")))
    assert "hm" not in prompt
    assert "<Assistant>\n\n4" in prompt


@pytest.mark.parametrize("name", ["generation", "json arguments", "reasoning", "tool use"])
def test_calls_and_their_results_reach_the_prompt(name: str) -> None:
    prompt = render(STAND_INS[name], given(user("x"), CALLS, *RESULTS, tools=TOOLS))
    places = [prompt.rindex(part) for part in ("Rome", "Oslo", "celsius", "700000 people")]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["channels", "one call"])
def test_calls_of_one_answer_have_a_message_each_where_only_one_is_shown(name: str) -> None:
    """Each is followed by its result."""
    together = CALLS | {"content": "Let me look.", "reasoning": "Two cities."}
    prompt = render(STAND_INS[name], given(user("x"), together, *RESULTS))
    parts = ("Let me look.", "Rome", "celsius", "Oslo", "700000 people")
    places = [prompt.index(part) for part in parts]
    assert places == sorted(places)


def test_calls_are_shown_by_templates_that_look_for_null_content_and_text_arguments() -> None:
    prompt = render(STAND_INS["null content"], given(user("x"), CALL, RESULT))
    assert '<Call>weather\n```json\n{"city": "Rome", "days": 3}\n```' in prompt


def test_calls_have_short_ids_where_a_template_refuses_all_others() -> None:
    """Mistral's templates do. A call and its result keep the same ID."""
    source = (
        "{% for m in messages %}{% for one in (m.tool_calls or []) + [m] %}"
        "{% set id = one.id or one.tool_call_id %}{% if id and id | length != 9 %}"
        "{{ raise_exception('Tool call IDs should have length 9!') }}{% endif %}"
        "[{{ id }}]{{ one.function }}{% endfor %}{{ m.content }}{% endfor %}"
    )
    prompt = render(compile_template(source), given(user("x"), *LONG_IDS))
    shown = [part for part in re.findall(r"\[(\w*)\]", prompt) if part]
    assert len(shown) == 2
    assert shown[0] == shown[1]
    assert "[call00001]" in render(compile_template(source), given(user("x"), CALL, RESULT))


def test_other_forms_are_tried_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_rendering, "_FORMS_S", -1.0)
    assert "does not show" in str(refusal("null content", given(user("x"), CALL, RESULT)))


PREFILLS = ["<", "", " ", "x", "The", "  both  ends \n", "a\n", "\n\nb", "user", "<think>\nso"]


@pytest.mark.parametrize("prefill", PREFILLS)
@pytest.mark.parametrize("name", ["plain", "silent", "generation", "trimming", "alternating"])
def test_a_continued_message_ends_the_prompt_as_in_transformers(name: str, prefill: str) -> None:
    """Also a prefill that occurs earlier, and white space that the template strips."""
    answer = {"role": "assistant", "content": prefill}
    template_input = given(user(f"<The user> x {prefill}"), answer, continues_final_message=True)
    prompt = render(STAND_INS[name], template_input)
    assert prompt == theirs_of(SOURCES[name][0], template_input)
    strips = name in ("trimming", "alternating")
    assert prompt.endswith(prefill.strip() if strips else prefill)
    assert "CONTINUE" not in prompt


def test_a_message_that_cannot_be_continued_is_refused() -> None:
    loud = compile_template("{% for m in messages %}{{ m.content | upper }}{% endfor %}")
    for template, last, reason in (
        (loud, user("quiet"), "does not show the last message"),
        (STAND_INS["reasoning"], CALL, "it has tool_calls"),
        (STAND_INS["silent"], {"role": "critic", "content": "x"}, "does not show the last message"),
    ):
        with pytest.raises(InvalidRequestError, match=reason) as caught:
            render(template, given(user("y"), last, continues_final_message=True))
        assert caught.value.param == "continue_final_message"


def test_what_comes_after_a_continued_message_is_not_lost() -> None:
    late = "{% for m in messages | reverse %}{{ m.content }}{% endfor %}"
    with pytest.raises(InvalidRequestError, match=r"messages\.0\.content"):
        render(compile_template(late), given(user("y"), user("x"), continues_final_message=True))


@pytest.mark.parametrize(
    "source",
    [
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ messages[0].content }}{{ raise_exception('no') }}",
        "{{ messages[7].content }}",
        "{{ 1 // 0 }}",
        "{{ messages[0].content | tojson(nonsense=1) }}",
    ],
)
def test_a_template_that_fails_refuses_the_request(source: str) -> None:
    with pytest.raises(InvalidRequestError, match="the chat template refuses") as caught:
        render(compile_template(source), given(user("x")))
    assert len(str(caught.value)) < 300
    assert caught.value.param == "messages"


def test_deep_arguments_are_refused_over_every_template() -> None:
    deep = '{"a":' * 99 + "1" + "}" * 99
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": deep}}]}
    for name in ("reasoning", "json arguments", "channels"):
        assert '{"a": ' * 98 in render(STAND_INS[name], given(user("x"), call))


def test_the_effort_and_thinking_reach_the_template() -> None:
    high = given(user("x"), variables={"reasoning_effort": "high"})
    assert "Reasoning: high" in render(STAND_INS["channels"], high)
    assert "Reasoning: medium" in render(STAND_INS["channels"], given(user("x")))
    off = given(user("x"), variables={"enable_thinking": False})
    assert render(STAND_INS["reasoning"], off).endswith("<think>\n\n</think>\n\n")


def _folder(path: Path, **files: Any) -> Path:
    """Return a folder with a tokenizer and these files; a dict is written as JSON."""
    save_tokenizer(path)
    (path / "chat_template.jinja").unlink(missing_ok=True)
    (path / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    for name, content in files.items():
        file = path / name.replace("__", "/")
        file = file.with_suffix(".jinja" if isinstance(content, str) else ".json")
        file.parent.mkdir(exist_ok=True)
        known = json.loads(file.read_text()) if file.is_file() else {}
        file.write_text(content if isinstance(content, str) else json.dumps(known | content))
    return path


LISTED = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]


@pytest.mark.parametrize(
    ("files", "sources"),
    [
        ({}, None),
        ({"chat_template": "file"}, ("file", None)),
        ({"tokenizer_config": {"chat_template": "settings"}}, ("settings", None)),
        ({"chat_template": "file", "tokenizer_config": {"chat_template": LISTED}}, ("file", None)),
        ({"tokenizer_config": {"chat_template": LISTED}}, ("D", "T")),
        ({"tokenizer_config": {"chat_template": LISTED[1:]}}, ("T", None)),
        ({"tokenizer_config": {"chat_template": LISTED[:1]}}, ("D", None)),
        ({"chat_template": "file", "chat_templates__tool_use": "more"}, ("file", "more")),
        ({"chat_template": {"chat_template": "old"}}, ("old", None)),
    ],
)
def test_templates_are_found_in_every_form_that_transformers_writes(
    tmp_path: Path, files: dict[str, Any], sources: tuple[str, str | None] | None
) -> None:
    template = load_text_model(str(_folder(tmp_path, **files))).template
    if sources is None:
        assert template is None
    else:
        assert template is not None
        tool_use = template.tool_use
        assert (template.source, None if tool_use is None else tool_use.source) == sources
        shown = template.for_tools(TOOLS)
        assert shown.source == (sources[1] or sources[0])


def test_a_chosen_template_replaces_the_models(tmp_path: Path) -> None:
    chosen = tmp_path / "own.jinja"
    chosen.write_text("own")
    folder = _folder(tmp_path / "model", tokenizer_config={"chat_template": LISTED})
    template = load_text_model(str(folder), chat_template=chosen).template
    assert template is not None
    assert (template.source, template.tool_use) == ("own", None)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder / "chat_template.json").write_text("[]")
    with pytest.raises(ModelNotSupportedError, match=r"chat_template\.json"):
        load_text_model(str(folder))
