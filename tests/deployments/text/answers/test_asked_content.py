"""Texts that grammars of whole answers allow and refuse."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import pytest

from deployments.text.answers.asking import CallsAsked, asked_grammar
from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.mark_text import MarkTokens, mark_tokens
from deployments.text.answers.reading import AnswerDelta, Answers, Begun
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from deployments.text.grammar_library import try_grammar
from deployments.text.grammars import Compiler
from deployments.text.structured_output import choice, json_schema, lark, regex
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec

pytest.importorskip("llguidance")

from tests.deployments.text.answers.asked_walks import Walker, marks_of, model_with

NUMBER = json_schema({"type": "integer"})
LETTERS = lark('start: REASONING call_0\nREASONING: "a"\ncall_0: "}" "b"\n%ignore / +/\nANY: "c"')
THOUGHT = "<think>\nplan <b>\n</think>\n\n"


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    function = {"name": name} if parameters is None else {"name": name, "parameters": parameters}
    return {"type": "function", "function": function}


def arguments(**properties: Any) -> dict[str, Any]:
    """Return a tool whose arguments have these schemas."""
    return tool("f", {"type": "object", "properties": properties, "required": [*properties]})


@cache
def format_of(calls: str, reasoning: str | None = "qwen3") -> AnswerFormat:
    thoughts = REASONING_FORMATS[reasoning] if reasoning else None
    return AnswerFormat(calls=CALL_FORMATS[calls], reasoning=thoughts)


def walker_of(
    answer_format: AnswerFormat,
    calls: CallsAsked | None = None,
    content: GrammarSpec | None = None,
    *,
    begun: Begun = Begun.NOTHING,
) -> Walker:
    text = model_with(marks_of(answer_format))
    spec = asked_grammar(answer_format, begun, calls, content, mark_tokens(text))
    assert spec is not None
    try_grammar(spec)
    return Walker(text, spec)


@pytest.mark.parametrize(
    ("content", "fits", "fails"),
    [
        (NUMBER, "12", "x"),
        (regex("(?i)ab*|/"), "aBb", "b"),
        (regex("ab*|/"), "/", "a/"),
        (choice(["one", "two"]), "two", "tw"),
        (LETTERS, "a  }b", "  a}b"),
    ],
)
def test_reasoning_may_precede_content(content: GrammarSpec, fits: str, fails: str) -> None:
    walker = walker_of(format_of("hermes"), content=content)
    assert walker.accepts(fits)
    assert walker.accepts(f"{THOUGHT}{fits}")
    for wrong in (fails, f"{THOUGHT}{fails}", THOUGHT, f"{fits}{THOUGHT}", f"{THOUGHT}{THOUGHT}"):
        assert not walker.accepts(wrong), wrong


def test_content_follows_reasoning_that_the_prompt_has_begun() -> None:
    walker = walker_of(format_of("hermes"), content=NUMBER, begun=Begun.REASONING)
    assert walker.accepts("\nplan\n</think>\n\n12")
    assert walker.accepts("</think>\n\n12")
    for wrong in ("12", "plan", "</think>\n\n", f"{THOUGHT}12"):
        assert not walker.accepts(wrong), wrong


@pytest.mark.parametrize(
    "said",
    ["<think>", "a</think> b <think> c</think>", '<tool_call>{"name": "f"}</tool_call>', "<tool"],
)
def test_content_that_a_grammar_constrains_may_speak_of_marks(said: str) -> None:
    answer_format = format_of("hermes")
    content = json.dumps({"text": said})
    answer = f"{THOUGHT}{content}"
    answers, prompt = Answers(answer_format), answer_format.start_anchors[0]
    for cut in range(len(answer)):
        reader = answers.reader(prompt, [tool("f")], is_constrained=True)
        parts = reader.add(answer[:cut]) + reader.add(answer[cut:]) + reader.flush()
        assert parts == AnswerDelta(content=content, reasoning="plan <b>")


def test_harmony_writes_content_into_its_channel() -> None:
    walker = walker_of(format_of("openai", "openai_gptoss"), content=NUMBER)
    final = "<|channel|>final<|message|>12"
    assert walker.accepts(final)
    assert walker.accepts(f"<|channel|>analysis<|message|>plan<|end|><|start|>assistant{final}")
    assert not walker.accepts("12")


def test_free_content_contains_no_mark() -> None:
    """The reader would take what follows for reasoning, or for a call."""
    walker = walker_of(format_of("hermes", None), CallsAsked([tool("f")]), regex("(.|\n)*"))
    assert walker.accepts("a < b")
    assert walker.accepts('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')
    model = model_with([])
    spec = asked_grammar(
        format_of("hermes"), Begun.NOTHING, CallsAsked([tool("f")]), regex(".*"), MarkTokens()
    )
    assert spec is not None
    spelled = Walker(model, spec)
    for wrong in ("a <think> b", "<tool_call>", "<think>"):
        assert not spelled.accepts(wrong), wrong


def test_an_answer_is_content_or_calls() -> None:
    walker = walker_of(format_of("hermes"), CallsAsked([tool("f")]), NUMBER)
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    for right in ("12", call, f"{call}\n{call}", f"{THOUGHT}{call}"):
        assert walker.accepts(right), right
    for wrong in (f"12{call}", f"{call}12", ""):
        assert not walker.accepts(wrong), wrong


def test_calls_of_mistral_are_possible_beside_json_with_the_same_bracket() -> None:
    content = json_schema({"type": "array", "items": {"type": "integer"}})
    walker = walker_of(format_of("mistral", "mistral"), CallsAsked([tool("f")]), content)
    for right in ("[1, 2]", "[TOOL_CALLS]f[ARGS]{}"):
        assert walker.accepts(right), right
    for wrong in ("[TOOL_CALLS]", '["TOOL_CALLS"]f[ARGS]{}'):
        assert not walker.accepts(wrong), wrong


def test_calls_that_begin_as_json_does_are_left_out_beside_content() -> None:
    walker = walker_of(format_of("llama3_json"), CallsAsked([tool("f")]), NUMBER)
    assert walker.accepts("12")
    assert not walker.accepts('{"name": "f", "parameters": {}}')


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        (CallsAsked([tool("f"), tool("g")], is_required=True), 3),
        (CallsAsked([tool("f"), tool("g")], is_required=True, allows_many=False), 1),
        (CallsAsked([tool("f"), tool("g")], is_required=True, name="f"), 1),
    ],
)
@pytest.mark.parametrize("calls", ["hermes", "kimi_k2"])
def test_the_number_of_calls_follows_the_request(calls: str, asked: CallsAsked, most: int) -> None:
    written = CALL_FORMATS[calls]
    walker = walker_of(format_of(calls, "deepseek_r1"), asked)

    def call(name: str, index: int) -> str:
        opening = written.opening.replace("{name}", name).replace("{json_name}", f'"{name}"')
        return f"{opening.replace('{index}', str(index))}{{}}{written.closing}"

    for count in range(4):
        several = written.between.join(call("f", i) for i in range(count))
        assert walker.accepts(written.before + several + written.after) is (0 < count <= most)
    other = written.before + call("g", 0) + written.after
    assert walker.accepts(other) is (asked.name is None)


def read(answer_format: AnswerFormat, one: dict[str, Any], answer: str) -> Any:
    reader = Answers(answer_format).reader(answer_format.start_anchors[0], [one])
    found = reader.add(answer)
    (call,) = (found + reader.flush()).calls
    return json.loads(call.arguments)["x"]


def test_a_string_of_json_may_contain_the_marks_of_its_format() -> None:
    one = arguments(x={"type": "string"})
    said = "a </tool_call>\n<tool_call> b"
    answer = f'<tool_call>\n{{"name": "f", "arguments": {json.dumps({"x": said})}}}\n</tool_call>'
    text = model_with(["<other>"])
    spec = asked_grammar(
        format_of("hermes"),
        Begun.CONTENT,
        CallsAsked([one], is_required=True),
        None,
        mark_tokens(text),
    )
    assert spec is not None
    assert Walker(text, spec).accepts(answer)
    assert read(format_of("hermes"), one, answer) == said


@pytest.mark.parametrize(
    "spec",
    [choice(["<x>b", "<x>c"]), json_schema({"const": "a<x>"}), lark('start: "<x><x>" "[Y]"')],
)
def test_a_text_of_a_special_token_is_spelled(spec: GrammarSpec) -> None:
    """The library took it for the token, and after it any token was allowed."""
    text = model_with(["<x>", "[Y]"])
    grammar, output = Compiler(lambda: text)(spec), list[int]()
    while True:
        allowed = grammar.allowed(output)
        assert allowed is not None, text.decode_all(output)
        assert not allowed[text.encode_part("<x>")[0]]
        ids = [i for i, weight in enumerate(allowed) if weight]
        if text.end_token_ids & set(ids):
            break
        output.append(ids[0])
    assert "<x>" in text.decode_all(output)


def test_a_string_in_a_dialect_of_json_may_look_like_a_name() -> None:
    """The library quotes what looks like a name, within strings, too."""
    answer_format = format_of("gemma4", "gemma4")
    one = arguments(x={"type": "object"})
    given = '{"{c:}": "a,b:"}'
    answer = f"<|tool_call>call:f{{x:{given}}}<tool_call|>"
    assert walker_of(answer_format, CallsAsked([one], is_required=True)).accepts(answer)
    assert read(answer_format, one, answer) == json.loads(given)
    said = "{c:} \x01"
    assert read(answer_format, one, f'<|tool_call>call:f{{x:<|"|>{said}<|"|>}}<tool_call|>') == said


INT_OR_TEXT = {"anyOf": [{"type": "integer"}, {"type": "string"}]}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, "", ""),
        ({"type": "string"}, "\n a </div>\n<parameter=x>\n", "\n a </div>\n<parameter=x>\n"),
        ({"type": "string"}, "a </parameter>", None),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "é🙂", "é🙂"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "é", None),
        ({"type": "string", "pattern": "b+/"}, "abb/", "abb/"),
        ({"type": "string", "pattern": "^b+$", "maxLength": 2}, "bbb", None),
        ({"type": "string", "format": "date"}, "2024-02-29", "2024-02-29"),
        ({"type": "string", "format": "date"}, "2023-02-29", None),
        ({"type": "string", "format": "ipv4"}, "10.0.0.255", "10.0.0.255"),
        ({"type": "string", "format": "ipv4"}, "10.0.0.256", None),
        ({"type": "string", "format": "int64"}, "x", "x"),
        ({"enum": ["a b", "1", 1, None]}, "a b", "a b"),
        ({"enum": ["a b", 1, None]}, "1", 1),
        ({"enum": ["a b", 1, None]}, "null", None),
        ({"enum": ["a b", 1, None]}, "a", None),
        ({"const": ""}, "", ""),
        ({"type": "integer", "minimum": 3}, "3", 3),
        ({"type": "integer", "minimum": 3}, "2", None),
        ({"type": "boolean"}, "true", True),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "nul", "nul"),
        (INT_OR_TEXT, "12", 12),
        (INT_OR_TEXT, "12 a", "12 a"),
        (INT_OR_TEXT, " 12", None),
        (INT_OR_TEXT, "-1.5e3", None),
        ({"anyOf": [{"type": "array"}, {"type": "string"}]}, '["a </b"]', None),
        ({"anyOf": [{"type": "array"}, {"type": "string"}]}, '["a", {"b": 1}]', ["a", {"b": 1}]),
        ({"anyOf": [{"type": "array"}, {"type": "string"}]}, " [a", None),
        ({"type": "array", "items": {"type": "string"}}, '["<b>"]', ["<b>"]),
        ({"type": "object"}, '{"</": 1}', None),
        ({}, '{"a": 1}', {"a": 1}),
        (True, "5", "5"),
    ],
)
def test_an_argument_without_quotes_is_read_as_its_schema_says(
    schema: Any, text: str, value: Any
) -> None:
    """Where `value` is None, the text is null or is not allowed."""
    answer_format = format_of("qwen3_coder")
    one = arguments(x=schema)
    walker = walker_of(answer_format, CallsAsked([one], is_required=True))
    answer = (
        f"<tool_call>\n<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>\n</tool_call>"
    )
    assert walker.accepts(answer) is (value is not None or text == "null")
    if walker.accepts(answer):
        assert read(answer_format, one, answer) == value


def test_arguments_may_be_left_out() -> None:
    one = tool(
        "f", {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]}
    )
    walker = walker_of(format_of("gemma4", "gemma4"), CallsAsked([one], is_required=True))
    for names in ("b", "ab", "bc", "abc"):
        written = ",".join(f'{name}:<|"|>x<|"|>' for name in names)
        assert walker.accepts(f"<|tool_call>call:f{{{written}}}<tool_call|>"), names
    for names in ("", "a", "ac", "ba"):
        written = ",".join(f'{name}:<|"|>x<|"|>' for name in names)
        assert not walker.accepts(f"<|tool_call>call:f{{{written}}}<tool_call|>"), names


STRING_OR_LIMITED = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]}
REFUSED = [
    (
        {"properties": {"a": {"type": "string", "format": "email"}}},
        "#/properties/a/format is email",
    ),
    ({"properties": {"a": STRING_OR_LIMITED}}, "#/properties/a/anyOf/1/minimum is not supported"),
    ({"properties": {"a": {"minimum": 3}}}, "#/properties/a needs a type"),
    ({"properties": {"a": {"type": "text"}}}, "#/properties/a/type is 'text': known are"),
    ({"properties": {"a": False}, "required": ["a"]}, "#/properties/a is false"),
    ({"properties": {"a>": {}}}, "#/properties/a> has a name that cannot be written"),
    ({"required": ["a"]}, "#/required/0 names 'a', which is not one of the properties"),
    ({"minProperties": 1}, "#/minProperties is not supported"),
    ({"properties": {"a": {"$ref": "#"}}}, "#/properties/a/[$]ref is '#'"),
    (
        {"properties": {"a": {"type": "array", "items": {"enum": ["</b>"]}}}},
        "#/properties/a/items/enum contains '</'",
    ),
]


@pytest.mark.parametrize(("parameters", "message"), REFUSED)
def test_arguments_that_cannot_be_enforced_are_refused(parameters: Any, message: str) -> None:
    asked = CallsAsked([tool("book", parameters)], is_required=True)
    with pytest.raises(
        InvalidRequestError, match=f"the parameters of book: .*{message}"
    ) as refused:
        asked_grammar(format_of("qwen3_coder"), Begun.NOTHING, asked, None, MarkTokens())
    assert refused.value.param == "tools"


@pytest.mark.parametrize("calls", ["hermes", "qwen3_coder"])
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"type": "array"}, '#/type must be object, got "array"'),
        ({"type": ["object", "null"]}, "#/type must be object"),
        ({"properties": {"a": {"type": "array", "uniqueItems": True}}}, "uniqueItems is not"),
        ({"properties": {"a": {"type": "string", "pattern": "("}}}, "#/properties/a/pattern is"),
    ],
)
def test_a_refused_schema_is_named_by_its_function(
    calls: str, parameters: Any, message: str
) -> None:
    tools = [tool("fine", {}), tool("book", parameters)]
    with pytest.raises(InvalidRequestError) as refused:
        asked_grammar(
            format_of(calls),
            Begun.NOTHING,
            CallsAsked(tools, is_required=True),
            None,
            MarkTokens(),
        )
    assert str(refused.value).startswith("tools: the parameters of book: ")
    assert message in str(refused.value)
    assert refused.value.param == "tools"


@pytest.mark.parametrize("calls", ["qwen3_coder", "glm45", "deepseek_v32", "minimax_m2"])
def test_a_hundred_tools_with_many_arguments_are_one_grammar(calls: str) -> None:
    kinds = [{"type": "string"}, {"type": ["string", "null"]}, {"type": "integer"}, {"enum": ["a"]}]
    properties = {f"p{number}": kinds[number % 4] for number in range(10)}
    tools = [tool(f"f{number}", {"properties": properties}) for number in range(100)]
    asked = CallsAsked(tools, is_required=True)
    spec = asked_grammar(format_of(calls), Begun.NOTHING, asked, None, MarkTokens())
    assert spec is not None
    try_grammar(spec)


def test_a_long_chain_of_references_is_refused() -> None:
    chain = {f"D{i}": {"anyOf": [{"$ref": f"#/$defs/D{i + 1}"}]} for i in range(1_000)}
    parameters = {
        "$defs": {**chain, "D1000": {"type": "string"}},
        "properties": {"a": {"$ref": "#/$defs/D0"}},
    }
    calls = CallsAsked([tool("book", parameters)], is_required=True)
    with pytest.raises(InvalidRequestError, match="nested too deeply") as refused:
        asked_grammar(format_of("qwen3_coder"), Begun.NOTHING, calls, None, MarkTokens())
    assert refused.value.param == "tools"


@pytest.mark.timeout(20)
def test_references_that_branch_without_end_are_followed_once() -> None:
    branches = {"anyOf": [{"$ref": f"#/$defs/{i % 10}"} for i in range(20)] + [{"type": "string"}]}
    schema = {"$defs": {str(i): branches for i in range(10)}, "properties": {"x": branches}}
    one = tool("f", schema)
    walker = walker_of(format_of("qwen3_coder"), CallsAsked([one], is_required=True))
    answer = walker.answer(Random(0))
    assert answer is not None
    assert "<function=f>" in answer


def test_a_name_that_cannot_be_written_is_refused() -> None:
    asked = CallsAsked([tool("a b")], is_required=True)
    with pytest.raises(InvalidRequestError, match="the name 'a b' cannot be written") as refused:
        asked_grammar(format_of("mistral"), Begun.NOTHING, asked, None, MarkTokens())
    assert refused.value.param == "tools"
