"""Readers of answers lose nothing that a model wrote, and hold text back no longer than needed."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.reading import AnswerDelta, AnswerReader, Answers, Begun
from deployments.text.answers.reasoning_formats import REASONING_FORMATS, THINK
from tests.deployments.text.answers.messages import TOOLS, Message, found_in, read
from tests.deployments.text.answers.spoken import PAIRS, answers_of

HERMES = Answers(AnswerFormat(reasoning=THINK, calls=CALL_FORMATS["hermes"]))
ONLY_CALLS = Answers(AnswerFormat(calls=CALL_FORMATS["hermes"]))
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
OTHER = '<tool_call>{"name": "time"}</tool_call>'
WEATHER = ("weather", {"city": "Rome"})
TIME: tuple[str, Any] = ("time", {})
ANSWERS = [
    ("", Message()),
    ("Hello <b> you\n", Message("Hello <b> you\n")),
    (CALL, Message(calls=(WEATHER,))),
    (f"{CALL}\n{OTHER}\n", Message(calls=(WEATHER, TIME))),
    (f"Let me see. \n\n{CALL}", Message("Let me see.", calls=(WEATHER,))),
    (f"{CALL}\n\nThere.", Message("There.", calls=(WEATHER,))),
    (f"One.\n{CALL}\n\nTwo.\n{OTHER}", Message("One.\nTwo.", calls=(WEATHER, TIME))),
    ("<tool_call>{broken}</tool_call> x", Message("<tool_call>{broken}</tool_call> x")),
    ("<tool_call>[1]</tool_call>", Message("<tool_call>[1]</tool_call>")),
    ('<tool_call>{"name": "f", "arg', Message('<tool_call>{"name": "f", "arg')),
    (f'<tool_call>{{"name": "f {CALL}', Message('<tool_call>{"name": "f', calls=(WEATHER,))),
    ("a <tool_cal", Message("a <tool_cal")),
    ("<think>\nplan\n</think>\n\nHi <b> \n\n you\n", Message("Hi <b> \n\n you\n", "plan")),
    ("<think>a</think> <think> b\n</think> Two.", Message("Two.", "a\nb")),
    ("Write <think> first,\n</think> last", Message("Write <think> first,\n</think> last")),
    (
        "<think>a</think>The marks are <think> b\n</think>.",
        Message("The marks are <think> b\n</think>.", "a"),
    ),
    ("<think>never ends\n", Message("", "never ends")),
    ("<think></think>Hi", Message("Hi")),
    ("</think>Hi", Message("Hi")),
    ("Hi</think>", Message("Hi</think>")),
    (f"<think>{CALL}</think>{OTHER}", Message("", CALL, (TIME,))),
]


@pytest.mark.parametrize(("text", "message"), ANSWERS)
def test_an_answer_is_split_alike_wherever_it_is_cut(text: str, message: Message) -> None:
    assert read(HERMES, "", [text]) == message
    assert read(HERMES, "", text) == message
    for place in range(1, len(text)):
        assert read(HERMES, "", [text[:place], text[place:]]) == message


def test_calls_have_ids_of_their_own() -> None:
    calls = found_in(HERMES, "", [CALL + OTHER + OTHER]).calls
    assert len({call.call_id for call in calls}) == 3
    (mistral,) = found_in(answers_of("mistral"), "", ["[TOOL_CALLS]f[ARGS]{}"]).calls
    assert re.fullmatch("[a-zA-Z0-9]{9}", mistral.call_id)
    text = "[TOOL_CALLS]f[CALL_ID]abc012345[ARGS]{}"
    (mistral,) = found_in(answers_of("mistral"), "", [text]).calls
    assert mistral.call_id == "abc012345"
    text = "<|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
    (kimi,) = found_in(answers_of("kimi_k2"), "", [text]).calls
    assert (kimi.name, kimi.call_id) == ("f", "functions.f:3")


@pytest.mark.parametrize("form", ["openai", "gemma4"])
def test_a_cut_mark_of_special_tokens_is_no_content(form: str) -> None:
    reasoning = REASONING_FORMATS[PAIRS[form]]
    for count in range(len(reasoning.special_openings[0]), len(reasoning.opening)):
        assert found_in(answers_of(form), "", [reasoning.opening[:count]]) == AnswerDelta()


def test_a_cut_mark_after_calls_is_no_content() -> None:
    form = CALL_FORMATS["deepseek_v32"]
    tail = f"\n{form.tail}"
    call = '<｜DSML｜function_calls>\n<｜DSML｜invoke name="time">\n</｜DSML｜invoke>'
    for count in range(len(tail) + 1):
        found = found_in(answers_of("deepseek_v32"), "", [call + tail[:count]])
        assert (found.content, len(found.calls)) == ("", 1)


def test_mistral_may_leave_out_the_mark_of_arguments() -> None:
    (call,) = found_in(answers_of("mistral"), "", ['[TOOL_CALLS]time{"zone": "UTC"}']).calls
    assert (call.name, call.arguments) == ("time", '{"zone": "UTC"}')


def test_whole_json_at_the_answers_end_is_a_call() -> None:
    (call,) = found_in(HERMES, "", ['<tool_call>{"name": "time", "arguments": {}}\n']).calls
    assert call.name == "time"


def test_without_tools_a_call_is_content() -> None:
    reader = HERMES.reader()
    assert reader.add(f"<think>plan</think>{CALL}") + reader.flush() == AnswerDelta(CALL, "plan")
    reader = ONLY_CALLS.reader()
    assert reader.add(CALL) + reader.flush() == AnswerDelta(CALL)


def test_text_is_not_held_back_longer_than_a_mark_may_begin() -> None:
    reader = HERMES.reader(tools=TOOLS)
    assert reader.add("\n<think") == AnswerDelta()
    assert reader.add(">") == AnswerDelta()
    assert reader.add("plan") == AnswerDelta(reasoning="plan")
    assert reader.add(" <b> </th") == AnswerDelta(reasoning=" <b>")
    assert reader.add("e> </think") == AnswerDelta(reasoning=" </the>")
    for text, content in (
        (">\nHello", "Hello"),
        (" <too", ""),
        ("th>", " <tooth>"),
        ("\n", ""),
        ("x<think", "\nx<think"),
        ("<tool_", ""),
    ):
        assert reader.add(text) == AnswerDelta(content)


AS_WRITTEN = [
    '{"n": 1e999, "m": -0, "x": 1.10, "y": 12345678901234567890.0}',
    '{"big": ' + "9" * 5_000 + "}",
    '{"a": 1, "a": 2}',
    '{ "a":[ ],\n"b" : "\\u00e9\\ud83d\\ude42" }',
    "{}",
    '{"a": "}, \\"arguments\\": {"}',
]


@pytest.mark.parametrize("arguments", AS_WRITTEN)
def test_arguments_of_json_stay_as_the_model_wrote_them(arguments: str) -> None:
    for body in (
        f'{{"name": "f", "arguments": {arguments}}}',
        f' {{ "arguments" :{arguments} , "id": [1e999, {{}}], "name":"f" }} ',
        f'{{"name": "g", "arguments": 3, "name": "f", "arguments": {arguments}}}',
    ):
        found = found_in(HERMES, "", [f"<tool_call>{body}</tool_call>"])
        assert found.content == ""
        assert [(call.name, call.arguments) for call in found.calls] == [("f", arguments)]
    for form, text in (
        ("mistral", f"[TOOL_CALLS]f[ARGS]{arguments}"),
        ("mistral", f'[TOOL_CALLS] [{{"name": "f", "arguments": {arguments}}}]'),
        ("llama3_json", f'{{"name": "f", "parameters": {arguments}}}'),
        ("granite", f'<|tool_call|>[{{"name": "f", "arguments": {arguments}}}]'),
    ):
        (call,) = found_in(answers_of(form), "", [text]).calls
        assert call.arguments == arguments


@pytest.mark.parametrize(
    "body",
    [
        "{" * 90_000,
        '{"name": "f", "arguments": ' + '{"a":' * 90_000,
        '{"name": "f", "arguments": {"a": ' + "[" * 120 + "]" * 120 + "}}",
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {"a": "\\ud800"}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": null}',
        '{"name": 3, "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": "f", "parameters": {"a": 1}}',
        '{"name": "f"} {}',
        '{"function": "f"}',
        '"name"',
        "",
    ],
)
def test_a_text_that_is_no_call_is_content(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    assert found_in(HERMES, "", [text]) == AnswerDelta(text)


TYPES = {
    "$defs": {
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
        "Colour": {"enum": ["red", 3]},
        "Loop": {"$ref": "#/$defs/Loop"},
    },
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "node": {"$ref": "#/$defs/Node"},
        "maybe": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "colour": {"$ref": "#/$defs/Colour"},
        "loop": {"$ref": "#/$defs/Loop"},
        "one": {"const": 1},
        "all": {"allOf": [{"type": "array"}]},
        "any": {},
    },
}


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("text", "5", "5"),
        ("text", "true", "true"),
        ("text", " a\n ", " a\n "),
        ("text", "", ""),
        ("count", "5", 5),
        ("count", " 5 ", 5),
        ("count", "5.0", 5.0),
        ("count", "5.5", "5.5"),
        ("count", "five", "five"),
        ("ratio", "5", 5),
        ("ratio", "1e3", 1000.0),
        ("ratio", "1e999", "1e999"),
        ("flag", "true", True),
        ("flag", "False", False),
        ("flag", "1", "1"),
        ("node", '{"next": {}}', {"next": {}}),
        ("node", "{'next': 1}", "{'next': 1}"),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("maybe", "{}", {}),
        ("either", "5", 5),
        ("either", "5a", "5a"),
        ("either", "true", "true"),
        ("colour", "red", "red"),
        ("colour", "3", 3),
        ("loop", "5", "5"),
        ("one", "1", 1),
        ("all", "[1]", [1]),
        ("any", "5", "5"),
        ("any", "[5]", [5]),
        ("unknown", "5", "5"),
    ],
)
def test_the_schema_decides_on_the_type_of_plain_text(name: str, written: str, value: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": TYPES}}
    text = f"<tool_call>f<arg_key>{name}</arg_key><arg_value>{written}</arg_value></tool_call>"
    reader = answers_of("glm45").reader(tools=[tool])
    (call,) = (reader.add(text) + reader.flush()).calls
    assert json.loads(call.arguments) == {name: value}
    assert type(json.loads(call.arguments)[name]) is type(value)


@pytest.mark.parametrize(
    ("prompt", "begun"),
    [
        ("", Begun.NOTHING),
        ("<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", Begun.NOTHING),
        ("<|im_start|>assistant\n<think>\n", Begun.REASONING),
        ("<|im_start|>assistant\n<think>a plan", Begun.REASONING),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", Begun.CONTENT),
        ("<｜Assistant｜></think>", Begun.CONTENT),
        ("<|assistant|>\n", Begun.NOTHING),
        ("<|im_start|>assistant\nOnce upon", Begun.CONTENT),
        ("<|im_start|>assistant\nOnce upon a <th", Begun.CONTENT),
    ],
)
def test_a_prompt_may_begin_the_answer(prompt: str, begun: Begun) -> None:
    assert HERMES.reader(prompt, TOOLS).begun is begun
    text = {Begun.REASONING: "x</think>\n", Begun.NOTHING: "<think>x</think>"}.get(begun, "")
    expected = Message("Yes.", "x" if text else "", (WEATHER,))
    assert read(HERMES, prompt, [f"{text}Yes.{CALL}"]) == expected
    assert read(HERMES, prompt, f"{text}Yes.{CALL}") == expected


def test_a_mark_that_begins_after_constrained_content_is_content() -> None:
    text = "[1] <|channel|>commentary to=functions.f <|message|>"
    for pieces in ([text], [*text]):
        reader = answers_of("openai").reader(tools=TOOLS, is_constrained=True)
        found = sum((reader.add(piece) for piece in pieces), AnswerDelta()) + reader.flush()
        assert found == AnswerDelta(text)


def test_gpt_oss_may_name_the_function_before_the_channel() -> None:
    answers = answers_of("openai")
    for text in (
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}",
        " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        "<|channel|>commentary to=functions.f<|message|>{}<|call|>",
        "<|channel|>analysis to=functions.f code<|message|>{}",
    ):
        message = Message("", "a\nb", (("f", {}),))
        channels = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
        answer = channels.format("a") + channels.format("b") + text
        assert read(answers, "<|start|>assistant", [answer]) == message
        assert read(answers, "<|start|>assistant", answer) == message


def reasoning_tokens(prompt: str, tokens: list[str], answers: Answers = HERMES) -> int:
    reader = answers.reader(prompt)
    offsets, place = [], 0
    for token in tokens:
        reader.add(token)
        offsets.append(place)
        place += len(token)
    reader.flush()
    return reader.num_reasoning_tokens(offsets)


def test_tokens_of_reasoning_are_counted() -> None:
    tokens = ["<think>", "a ", "plan", "</think>", "Hi"]
    assert reasoning_tokens("", tokens) == 2
    assert reasoning_tokens("<|im_start|>assistant\n<think>\n", tokens[1:]) == 2
    assert reasoning_tokens("<|im_start|>assistant\n<think>\n", tokens[1:3]) == 2
    assert reasoning_tokens("", ["Hi ", "you"]) == 0
    assert reasoning_tokens("", [*tokens[:4], *tokens]) == 4
    assert reasoning_tokens("", [*tokens, *tokens]) == 2
    assert reasoning_tokens("", ["<think>", "a" * 9_000, "b" * 9_000, "</think>"]) == 2


OWN = {
    "version": 1,
    "defaults": {"role": "assistant"},
    "start_anchor": "<bot>",
    "fields": {
        "thinking": {"open": "<why>", "close": "</why>", "optional": False},
        "note": {"open": "<note>", "close": "</note>", "repeats": True},
        "tool_calls": {
            "open_pattern": r"<do (?P<name>\w+)>",
            "close": ["</do>", "<end>"],
            "content": "json",
            "repeats": True,
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
        "content": {"close_pattern": r"\s*(?:<end>|<stop>)"},
    },
}
OWN_XML = {
    "start_anchor_pattern": r"<(?:bot|model)>",
    "fields": {
        "reasoning": {"open": "<why>", "close_pattern": r"</why>|$", "content": "text"},
        "tool_calls": {
            "open_pattern": r"<do (?P<name>\w+)>",
            "close_pattern": r"</do>|\Z",
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<(?P<key>\w+)=(?P<value>[^>]*)>"},
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}


@pytest.mark.parametrize(
    ("template", "text", "message"),
    [
        (OWN, "Hi <end>", Message("Hi")),
        (OWN, "<why>b</why>Hi<note>n</note> you<stop>", Message("Hi\nn\nyou", "b")),
        (OWN, 'Hi<do f>{"a": "</do>"}</do>.<end>', Message("Hi\n.", "", (("f", {"a": "</do>"}),))),
        (OWN, 'Hi<do f>{"a": 1}', Message("Hi", "", (("f", {"a": 1}),))),
        (OWN, "Hi<do f>{a}</do>", Message("Hi<do f>{a}</do>")),
        (
            OWN_XML,
            "<why>b</why>Hi<do get_weather><count=3>",
            Message("Hi", "b", (("get_weather", {"count": 3}),)),
        ),
        (OWN_XML, "<do f><a=1>x</do>", Message("<do f><a=1>x</do>")),
        (OWN_XML, "<why>b", Message("", "b")),
    ],
)
def test_a_checkpoints_own_template_is_read(
    template: dict[str, Any], text: str, message: Message
) -> None:
    answers = Answers(AnswerFormat(own_template=template))
    for pieces in ([text], list(text), *([text[:i], text[i:]] for i in range(1, len(text)))):
        assert read(answers, "<bot>", pieces) == message


def own(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"start_anchor": "<bot>", "fields": fields}


TO_F = {"function": {"name": "f", "arguments": "{content}"}}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("template", "message"),
    [
        (own(content={"close_pattern": r"<end>|$"}), Message("a x b\nc")),
        (own(content={"close_pattern": r"\s*$"}), Message("a x b<end>c")),
        (own(content={"close_pattern": ""}), Message("a x b<end>c")),
        (own(content={"close_pattern": "(?=<end>)"}), Message("a x b<end>c")),
        (own(thinking={"open_pattern": "(?=x)", "close_pattern": ""}), Message("a\nx b<end>c")),
        (own(thinking={"open_pattern": "(?=x)", "close": "b"}), Message("a\n<end>c", "x")),
        (
            own(
                tool_calls={
                    "open_pattern": "(?=x)",
                    "close_pattern": "",
                    "content": "xml-inline",
                    "content_args": {"tag_pattern": "(?P<key>k)(?P<value>v)"},
                    "transform": TO_F,
                }
            ),
            Message("a x b<end>c"),
        ),
        (
            own(
                tool_calls={
                    "open": "x",
                    "close": "b",
                    "content": "json",
                    "content_args": {"string_delims": [["", ""]]},
                    "transform": {"function": 5},
                }
            ),
            Message("a x b<end>c"),
        ),
    ],
)
def test_empty_marks_do_not_stop_the_reader(template: dict[str, Any], message: Message) -> None:
    answers = Answers(AnswerFormat(own_template=template))
    text = "a x b<end>c"
    for pieces in ([text], list(text), *([text[:i], text[i:]] for i in range(1, len(text)))):
        assert read(answers, "", pieces) == message


MARKS = sorted(
    {
        "<think>",
        "</think>",
        "[THINK]",
        "[/THINK]",
        "<|start|>assistant",
        "<|channel|>analysis<|message|>",
        "<|channel|>final<|message|>",
        "<|end|>",
        '{"name": "f", "arguments": ',
        '{"name": "f", "parameters": {"a": ',
        "{}",
        "}",
        "]",
        '"',
        "\n```json\n",
        *(
            piece
            for form in CALL_FORMATS.values()
            for text in (form.opening, form.closing, form.before, form.after, form.tail)
            for piece in re.split(r"\{(?:json_)?name\}|\{index\}", text)
            if piece.strip()
        ),
    }
)
PIECES = st.lists(st.sampled_from([*MARKS, "W", "W", " ", "\n"]), max_size=14)


def words_of(texts: list[str]) -> Counter[str]:
    return Counter(re.findall(r"w\d+w", " ".join(texts)))


@pytest.mark.parametrize("form", PAIRS)
@settings(max_examples=40)
@given(pieces=PIECES, size=st.integers(1, 9))
def test_no_word_is_lost_or_told_twice(form: str, pieces: list[str], size: int) -> None:
    numbered = [f"w{place}w" if piece == "W" else piece for place, piece in enumerate(pieces)]
    text = "".join(numbered)
    found = found_in(answers_of(form), "", [text])
    told = [found.content, found.reasoning]
    told += [f"{call.name} {call.arguments} {call.call_id}" for call in found.calls]
    assert words_of(told) == words_of([text])
    cut = [text[place : place + size] for place in range(0, len(text), size)]
    again = found_in(answers_of(form), "", cut)
    assert (again.content, again.reasoning) == (found.content, found.reasoning)
    assert [call.arguments for call in again.calls] == [call.arguments for call in found.calls]


@settings(max_examples=100)
@given(pieces=st.lists(st.sampled_from(["<tool_call>", "</tool_call>", '{"name": "f"}', "x"])))
def test_each_missing_mark_belongs_to_a_call(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = found_in(ONLY_CALLS, "", [text])
    missing = [
        text.count(mark) - found.content.count(mark)
        for mark in ("<tool_call>", '{"name": "f"}', "</tool_call>")
    ]
    is_unclosed = text.endswith('<tool_call>{"name": "f"}')
    assert missing == [len(found.calls), len(found.calls), len(found.calls) - is_unclosed]


class Work:
    """Counts the characters that a reader searches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reader: AnswerReader) -> None:
        self.num_searched = 0
        search = type(reader._marks).next_mark

        def counted(
            marks: Any, region: Any, openable: Any, text: str, start: int, **others: Any
        ) -> Any:
            self.num_searched += len(text) - start
            return search(marks, region, openable, text, start, **others)

        monkeypatch.setattr(type(reader._marks), "next_mark", counted)


@pytest.mark.parametrize("form", PAIRS)
def test_the_work_for_a_token_does_not_grow_with_the_answer(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasoning = REASONING_FORMATS[PAIRS[form]]
    parameters = CALL_FORMATS[form].parameters
    opening = CALL_FORMATS[form].opening.replace("{json_name}", '"f"').replace("{name}", "f")
    opening = CALL_FORMATS[form].before + opening.replace("{index}", "0")
    opening += (
        parameters.opening.replace("{key}", "a") + parameters.quote if parameters else '{"a": "'
    )
    for begun in ("", reasoning.opening, opening):
        reader = answers_of(form).reader(tools=TOOLS)
        reader.add(begun)
        work = Work(monkeypatch, reader)
        for _ in range(1_000):
            reader.add("word " * 20)
        assert work.num_searched < 1_000 * 150
        reader.flush()
        monkeypatch.undo()


def test_many_broken_calls_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ('<tool_call>{"a' * 5_000, '<tool_call>{"a' * 5_000 + '"</tool_call>'):
        reader = ONLY_CALLS.reader(tools=TOOLS)
        work = Work(monkeypatch, reader)
        assert reader.add(text) + reader.flush() == AnswerDelta(text)
        assert work.num_searched < 10 * len(text)
        monkeypatch.undo()


def test_a_call_after_long_broken_ones_is_read() -> None:
    broken = f'<tool_call>{{"name": "f <tool_call>{"x" * 20_000}</tool_call>'
    message = Message(f"{broken} a {broken}", "", (WEATHER,))
    for size in (1_000, 100_000):
        text = f"{broken} a {broken}{CALL}"
        pieces = [text[place : place + size] for place in range(0, len(text), size)]
        assert read(ONLY_CALLS, "", pieces) == message


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("form", "opening", "repeated", "count", "closing"),
    [
        ("gemma4", "<|tool_call>call:f{", "a", 60_000, "}<tool_call|>"),
        ("gemma4", "<|tool_call>call:f{", "a ", 30_000, "}<tool_call|>"),
        ("gemma4", "<|tool_call>call:f{", '"\\"', 120_000, "}<tool_call|>"),
        ("glm45", "<tool_call>f\n", "<arg_key></arg_key>", 20_000, "</tool_call>"),
        ("qwen3_coder", "<function=f>", "<parameter=", 40_000, "</function>"),
        ("llama3_json", '{"name":' * 40 + '"', "} x", 150_000, '"} x'),
    ],
)
def test_a_long_call_takes_linear_time(
    form: str, opening: str, repeated: str, count: int, closing: str
) -> None:
    """Half a minute or more if the time is quadratic, or if a broken call is read again often."""
    text = opening + repeated * count + closing + "."
    assert found_in(answers_of(form), "", [text]) == AnswerDelta(text)


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": ["count"]},
        {"properties": {"count": {"type": 5, "enum": None, "anyOf": {"a": 1}}}},
        {"properties": {"count": {"type": [None, {}], "enum": 3, "allOf": 2, "$ref": []}}},
    ],
)
def test_a_schema_that_is_not_valid_declares_no_types(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    reader = answers_of("glm45").reader(tools=[tool])
    text = "<tool_call>f<arg_key>count</arg_key><arg_value>5</arg_value></tool_call>"
    (call,) = (reader.add(text) + reader.flush()).calls
    assert json.loads(call.arguments) == {"count": "5"}
