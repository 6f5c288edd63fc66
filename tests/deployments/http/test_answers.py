"""Reasoning and tool calls over HTTP: a stream tells what the whole answer tells, and no more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from deployments.text.answers.formats import AnswerFormat
from deployments.text.structured_output import ANY_OBJECT
from tests.deployments.answering import (
    CALLS_ALONE,
    CHANNELS,
    CHATML,
    HERMES,
    TOOL,
    AnsweringPool,
    chat,
    chunks,
    client_of,
    entire,
    joined,
    service,
    text_model,
)
from tests.deployments.ingress.test_client_resume import service_of

ROME = {"name": "weather", "arguments": '{"city": "Rome"}'}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
THOUGHT = "<think>\nThey want ≤ 3.\n</think>\n\n"
ANALYSIS = "<|channel|>analysis<|message|>They want ≤ 3.<|end|><|start|>assistant"
COMMENTARY = (
    "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"city": "Rome"}<|call|>'
)
TOOLS = {"tools": [TOOL]}
NAMED = {"type": "function", "function": {"name": "weather"}}
END = "<|im_end|>"
ANSWERS: dict[str, tuple[AnswerFormat | None, str, str, dict[str, Any], tuple[Any, ...]]] = {
    "reasoning and content": (
        HERMES, CHATML, f"{THOUGHT}Four.{END}", {}, ("They want ≤ 3.", "Four.", [], "stop"),
    ),
    "opened by the prompt": (
        HERMES, f"{CHATML}<think>\n", f"So.\n</think>\n\nFour.{END}", {},
        ("So.", "Four.", [], "stop"),
    ),
    "closed by the prompt": (
        HERMES, f"{CHATML}<think>\n\n</think>\n\n", f"Four.{END}", {},
        (None, "Four.", [], "stop"),
    ),
    "reasoning and a call": (
        HERMES, CHATML, f"{THOUGHT}{CALL}{END}", TOOLS,
        ("They want ≤ 3.", None, [ROME], "tool_calls"),
    ),
    "all of them": (
        HERMES, CHATML, f"{THOUGHT}Look.\n{CALL}\n{CALL}{END}", TOOLS,
        ("They want ≤ 3.", "Look.", [ROME, ROME], "tool_calls"),
    ),
    "the first call alone": (
        HERMES, CHATML, f"{CALL}\n{CALL}{END}", TOOLS | {"parallel_tool_calls": False},
        (None, None, [ROME], "tool_calls"),
    ),
    "no tools": (HERMES, CHATML, f"{CALL}{END}", {}, (None, CALL, [], "stop")),
    "tools declined": (
        HERMES, CHATML, f"{CALL}{END}", TOOLS | {"tool_choice": "none"}, (None, CALL, [], "stop"),
    ),
    "format without reasoning": (
        CALLS_ALONE, CHATML, f"{THOUGHT}{CALL}{END}", TOOLS,
        (None, THOUGHT.strip(), [ROME], "tool_calls"),
    ),
    "unknown format": (None, CHATML, f"{CALL}{END}", TOOLS, (None, CALL, [], "stop")),
    "ended in its reasoning": (
        HERMES, CHATML, f"{THOUGHT}x{END}", {"max_tokens": 12}, ("They", None, [], "length"),
    ),
    "ended in its opening": (
        HERMES, CHATML, f"{THOUGHT}x{END}", {"max_tokens": 7}, (None, None, [], "length"),
    ),
    "stopped in its reasoning": (
        HERMES, CHATML, f"{THOUGHT}x{END}", {"stop": ["want"]}, ("They", None, [], "stop"),
    ),
    "stopped by a mark": (
        HERMES, CHATML, f"{THOUGHT}x{END}", {"stop": ["</think>"]},
        ("They want ≤ 3.", None, [], "stop"),
    ),
    "cut in a call": (
        HERMES, CHATML, f"{CALL}x{END}", TOOLS | {"max_tokens": 20},
        (None, CALL[:20], [], "length"),
    ),
    "reasoning left out": (
        HERMES, CHATML, f"{THOUGHT}{CALL}{END}", TOOLS | {"include_reasoning": False},
        (None, None, [ROME], "tool_calls"),
    ),
    "channels": (
        CHANNELS, "<|start|>assistant", f"{ANALYSIS}<|channel|>final<|message|>Four.{END}", {},
        ("They want ≤ 3.", "Four.", [], "stop"),
    ),
    "channels shown": (
        CHANNELS, "<|start|>assistant", f"{ANALYSIS}<|channel|>final<|message|>Four.<|pad|>{END}",
        {"skip_special_tokens": False}, ("They want ≤ 3.", "Four.<|pad|>", [], "stop"),
    ),
    "stopped by a special token": (
        CHANNELS, "<|start|>assistant", f"{ANALYSIS}<|channel|>final<|message|>Four.{END}",
        {"stop": ["<|end|>"]}, ("They want ≤ 3.", None, [], "stop"),
    ),
    "stopped by a hidden token": (
        CHANNELS, "<|start|>assistant", f"<|channel|>final<|message|>Fo<|pad|>ur.{END}",
        {"stop": ["<|pad|>u"]}, (None, "Fo", [], "stop"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_stream_tells_what_the_whole_answer_tells(name: str, seed: int) -> None:
    answer_format, begins, text, fields, expected = ANSWERS[name]
    with client_of(service(answer_format, text, begins=begins, seed=seed)) as client:
        whole, streamed = chat(client, **fields), chunks(client, **fields)
    (choice,) = whole["choices"]
    message = choice["message"]
    assert message.get("reasoning") == message.get("reasoning_content")
    calls = [call["function"] for call in message.get("tool_calls", [])]
    told = (message.get("reasoning"), message["content"], calls, choice["finish_reason"])
    assert told == expected
    assert joined(streamed) == entire(whole)
    assert streamed[-1]["usage"] == whole["usage"]


def test_every_call_has_its_own_id_and_nothing_is_null() -> None:
    with client_of(service(HERMES, f"{THOUGHT}{CALL}\n{CALL}{END}")) as client:
        calls = chat(client, **TOOLS)["choices"][0]["message"]["tool_calls"]
        streamed = chunks(client, **TOOLS)
    assert len({call["id"] for call in calls}) == 2
    deltas = [choice["delta"] for chunk in streamed for choice in chunk["choices"]]
    assert None not in [value for delta in deltas for value in delta.values()]


def test_nothing_is_sent_while_a_call_is_written() -> None:
    """An empty chunk is sent only if it tells something else of its tokens."""
    with client_of(service(HERMES, f"{THOUGHT}{CALL}{END}")) as client:

        def empty(**fields: Any) -> int:
            told = [one for part in chunks(client, **TOOLS, **fields) for one in part["choices"]]
            return sum(not one["delta"] and one["finish_reason"] is None for one in told)

        assert empty() == 0
        assert empty(include_reasoning=False) == 0
        assert empty(include_reasoning=False, logprobs=True, return_token_ids=True) == 0
        assert empty(logprobs=True) > 5
        assert empty(return_token_ids=True) > 5
        assert empty(stream_options={"continuous_usage_stats": True}) > 5


def test_hidden_reasoning_shows_no_tokens() -> None:
    """As in vLLM: log-probabilities and IDs would spell it."""
    asked = {"logprobs": True, "return_token_ids": True}
    with client_of(service(HERMES, f"{THOUGHT}Four.{END}")) as client:
        for is_shown in (True, False):
            fields = asked | {"include_reasoning": is_shown}
            (choice,) = chat(client, **fields)["choices"]
            told = [one for part in chunks(client, **fields) for one in part["choices"]]
            for one in (choice, told[-1]):
                assert (one["logprobs"] is not None) == is_shown
                assert ("token_ids" in one) == is_shown
            assert "prompt_token_ids" in choice
            assert choice["message"]["content"] == "Four."


def test_log_probabilities_are_those_of_all_tokens() -> None:
    with client_of(service(HERMES, f"{THOUGHT}Four.{END}")) as client:
        (choice,) = chat(client, logprobs=True, return_token_ids=True)["choices"]
    text = "".join(entry["token"] for entry in choice["logprobs"]["content"][:8])
    assert text == "<think>\n"
    assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])


def reasoning_tokens(usage: dict[str, Any]) -> int:
    return int(usage["completion_tokens_details"]["reasoning_tokens"])


def test_usage_counts_the_tokens_of_the_reasoning() -> None:
    """A letter is a token here, so is a byte of `≤`; layout around the reasoning counts."""
    num = len(b"\nThey want \xe2\x89\xa4 3.\n")
    with client_of(service(HERMES, f"{THOUGHT}Four.{END}")) as client:
        assert reasoning_tokens(chat(client)["usage"]) == num
        assert reasoning_tokens(chat(client, include_reasoning=False)["usage"]) == num
        assert reasoning_tokens(chat(client, n=3)["usage"]) == 3 * num
        assert reasoning_tokens(chat(client, max_tokens=10)["usage"]) == 3
        told = chunks(client, stream_options={"continuous_usage_stats": True})
        counts = [reasoning_tokens(chunk["usage"]) for chunk in told]
        assert counts == sorted(counts)
        assert counts[0] == 0
        assert 0 < counts[len(counts) // 2] < num or num in counts
        assert counts[-1] == num
    analysis = len(b"They want \xe2\x89\xa4 3.")
    with client_of(service(CHANNELS, ANALYSIS + COMMENTARY, begins="<|start|>assistant")) as client:
        assert reasoning_tokens(chat(client, **TOOLS)["usage"]) == analysis
    with client_of(service(CALLS_ALONE, f"{CALL}{END}")) as client:
        assert "completion_tokens_details" not in chat(client, **TOOLS)["usage"]


def test_every_choice_is_read_on_its_own() -> None:
    answers = (f"{THOUGHT}One.{END}", f"{CALL}{END}", f"Three.{END}")
    with client_of(service(HERMES, *answers)) as client:
        whole, streamed = chat(client, n=3, **TOOLS), chunks(client, n=3, **TOOLS)
    told = [entire(whole, index) for index in range(3)]
    assert [joined(streamed, index) for index in range(3)] == told
    assert [one["finish_reason"] for one in told] == ["stop", "tool_calls", "stop"]
    assert [len(one["calls"]) for one in told] == [0, 1, 0]
    assert ["reasoning" in one["message"] for one in told] == [True, False, False]


def test_a_named_function_ends_with_stop() -> None:
    """As in vLLM and at OpenAI."""
    pytest.importorskip("llguidance")
    for choice, reason in ((NAMED, "stop"), ("required", "tool_calls"), ("auto", "tool_calls")):
        with client_of(service(CALLS_ALONE, f"{CALL}{END}")) as client:
            fields = TOOLS | {"tool_choice": choice}
            whole, streamed = chat(client, **fields), chunks(client, **fields)
        assert entire(whole) == joined(streamed)
        assert entire(whole)["finish_reason"] == reason
        assert entire(whole)["calls"] == [ROME]


def test_tools_reach_the_prompt_and_demands_the_pool() -> None:
    pytest.importorskip("llguidance")
    text = text_model(HERMES)
    pool = AnsweringPool(text, [END])
    with client_of(service_of(text, pool)) as client:
        for choice in ("auto", "none", "required", NAMED):
            chat(client, **TOOLS, tool_choice=choice)
        for wrong, message in (
            (
                {"response_format": {"type": "json_object"}},
                "response_format and tool_choice exclude each other",
            ),
            (
                {"structured_outputs": {"json_object": True}},
                "structured_outputs.json_object and tool_choice exclude each other",
            ),
            ({"tool_choice": "perhaps"}, "none, auto, required, or name a function"),
            ({"tool_choice": {"function": {"name": "rain"}}}, "there is no tool 'rain'"),
            ({"tools": []}, "needs tools"),
        ):
            body = {"messages": [{"role": "user", "content": "hi"}], "tool_choice": "required"}
            answer = client.post("/v1/chat/completions", json=body | TOOLS | wrong)
            assert answer.status_code == 400, answer.text
            assert message in answer.json()["error"]["message"]
    prompts = [text.decode_all(request.prompt_token_ids) for request in pool.asked]
    assert prompts == [f"{'weather' * shows}hi{CHATML}" for shows in (1, 0, 1, 1)]
    first, second, demanded, named = [request.params.grammar for request in pool.asked]
    assert first is second is None
    assert demanded is not None
    assert named is not None
    assert "<think>" in demanded.source
    assert "weather" in named.source


def test_a_grammar_of_the_content_begins_behind_the_reasoning() -> None:
    pytest.importorskip("llguidance")
    asked = {"response_format": {"type": "json_object"}}
    grammars = []
    for answer_format, begins in (
        (HERMES, CHATML),
        (HERMES, f"{CHATML}<think>\n"),
        (HERMES, f"{CHATML}<think>\n\n</think>\n\n"),
        (CALLS_ALONE, CHATML),
        (None, CHATML),
    ):
        text = text_model(answer_format, begins)
        pool = AnsweringPool(text, [END])
        with client_of(service_of(text, pool)) as client:
            chat(client, **asked)
        grammars.append(pool.asked[0].params.grammar)
    optional, open_one, *plain = grammars
    assert plain == [ANY_OBJECT] * 3
    assert optional is not None
    assert open_one is not None
    assert "</think>" in optional.source
    assert "</think>" in open_one.source
    assert optional != open_one


def test_content_that_a_grammar_constrains_may_speak_of_marks() -> None:
    pytest.importorskip("llguidance")
    content = '{"said": "a </think> <think> <tool_call>{b</tool_call>"}'
    fields = TOOLS | {"response_format": {"type": "json_object"}}
    with client_of(service(HERMES, f"{THOUGHT}{content}{END}")) as client:
        whole, streamed = chat(client, **fields), chunks(client, **fields)
    assert entire(whole) == joined(streamed)
    assert entire(whole)["message"]["content"] == content
    assert entire(whole)["message"]["reasoning"] == "They want ≤ 3."
    assert entire(whole)["calls"] == []


@pytest.mark.parametrize("answer_format", [None, replace(HERMES, calls=None)])
def test_a_demanded_call_needs_a_format(answer_format: AnswerFormat | None) -> None:
    with client_of(service(answer_format, END)) as client:
        body = {"messages": [{"role": "user", "content": "hi"}], "tool_choice": "required"}
        answer = client.post("/v1/chat/completions", json=body | TOOLS)
    assert answer.status_code == 400
    assert "--tool-call-parser" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "tool_choice"


def test_an_answer_that_the_prompt_does_not_begin_has_begun_nothing() -> None:
    """Earlier turns end the prompt then, and their marks are not the answer's."""
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": f"{CHATML}<think>\n"},
        {"role": "user", "content": "and?"},
    ]
    with client_of(service(HERMES, f"Four.{END}")) as client:
        told = chat(client, messages=history, add_generation_prompt=False)
        assert told["choices"][0]["message"] == {"role": "assistant", "content": "Four."}
        told = chat(client, messages=history[:2], continue_final_message=True)
        assert told["choices"][0]["message"]["reasoning"] == "Four."


RESUMED = {
    "hermes": (HERMES, CHATML, f"{THOUGHT}Look.\n{CALL}\n{CALL}{END}"),
    "cut": (HERMES, CHATML, f"{THOUGHT}Look.\n{CALL[:30]}"),
    "channels": (CHANNELS, "<|start|>assistant", f"{ANALYSIS}{COMMENTARY}"),
}


@pytest.mark.parametrize("name", RESUMED)
def test_two_connections_tell_what_one_would_have(name: str) -> None:
    """Cut behind every chunk: in the reasoning, in marks and in calls."""
    answer_format, begins, text = RESUMED[name]
    model = text_model(answer_format, begins)
    num_tokens = len(model.encode_part(text))
    with client_of(service_of(model, AnsweringPool(model, [text]))) as client:
        asked = TOOLS | {"return_token_ids": True, "max_tokens": num_tokens}
        whole = chat(client, **asked)
        first, *told = chunks(client, **asked)
        for count in range(1, len(told)):
            ids = [
                i for one in told[:count] for c in one["choices"] for i in c.get("token_ids", ())
            ]
            again = asked | {"resume": {"token_ids": ids}}
            _, *rest = chunks(client, **again)
            assert in_turn([first, *told[:count]], rest) == entire(whole)
            assert rest[-1]["usage"] == whole["usage"]
            assert entire(chat(client, **again)) == entire(whole)


def in_turn(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what two connections told; the first one may have had the end, too."""
    had_end = any(one["finish_reason"] for part in first for one in part["choices"])
    if not had_end:
        return joined([*first, *second])
    (last,) = [one for part in second for one in part["choices"]]
    assert last["delta"] == {}
    return joined(first) | {"finish_reason": last["finish_reason"]}


def test_a_stream_without_reasoning_and_tools_pays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("a plain answer is read")

    served = service(CALLS_ALONE, f"{THOUGHT}Four.{END}")
    answers = served.text.answers
    assert answers is not None
    monkeypatch.setattr(type(answers), "reader", refused)
    monkeypatch.setattr("deployments.api.http.responses.Response.chunk", refused)
    with client_of(served) as client:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        text = client.post("/v1/chat/completions", json=body | {"max_tokens": 8}).text
    told = [json.loads(event[6:]) for event in text.split("\n\n")[:-2]]
    assert "error" in told[-1]  # only the last chunk is no frame
    parts = [one["choices"][0]["delta"]["content"] for one in told[:-1]]
    assert "<think>\n".startswith("".join(parts))
    assert len(parts) > 1


def test_completions_are_not_read() -> None:
    with client_of(service(HERMES, f"{THOUGHT}{CALL}{END}")) as client:
        body = {"prompt": "hi", "max_tokens": 200}
        told = client.post("/v1/completions", json=body).json()
    assert told["choices"][0]["text"] == THOUGHT + CALL
    assert "completion_tokens_details" not in told["usage"]
