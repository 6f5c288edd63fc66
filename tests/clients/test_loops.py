"""OpenAI's client for Python runs tools in a loop with a model that reasons, in every format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.clients.dialects import DIALECTS
from tests.clients.server import MODEL, scripted_server

pytest.importorskip("llguidance")

NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)
DAILY = {
    *("hermes", "qwen3_coder", "llama3_json", "mistral", "glm45"),
    *("deepseek_v3", "openai", "gemma4", "granite"),
}
"""Formats that `make test` tries; the others run at night."""
DEGREES = {"Paris": "22", "Rome": "18"}
REMEMBERS = "It is 22 degrees in Paris. I looked it up as planned."
"""Answer to a prompt that shows the earlier thought."""


class GetWeather(BaseModel):
    """Weather of a city."""

    city: str
    unit: Literal["celsius", "fahrenheit"]


class Person(BaseModel):
    """A person."""

    name: str
    age: int


TOOL: Any = openai.pydantic_function_tool(GetWeather, name="get_weather")
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}
ADA: Any = [{"role": "user", "content": "Describe Ada as JSON."}]
THOUGHT = 'Ada is 36: {"age": 36}.'


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in DAILY else NIGHTLY) for name in DIALECTS],
)
def format_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def client(format_name: str) -> Iterator[OpenAI]:
    with (
        scripted_server(format=format_name) as url,
        OpenAI(base_url=url, api_key="-", max_retries=0) as asked,
    ):
        yield asked


def answered(client: OpenAI, stream: bool, **fields: Any) -> tuple[Any, str]:
    """An answer's message and its finish reason."""
    if not stream:
        whole = client.chat.completions.create(model=MODEL, **fields)
        return whole.choices[0].message, whole.choices[0].finish_reason
    with client.chat.completions.stream(model=MODEL, **fields) as events:
        final = events.get_final_completion()
    return final.choices[0].message, final.choices[0].finish_reason


def loop(client: OpenAI, stream: bool, question: str, **fields: Any) -> list[Any]:
    """The model's messages, while each call is answered."""
    messages: list[Any] = [{"role": "user", "content": question}]
    told = []
    while True:
        message, reason = answered(client, stream, messages=messages, tools=[TOOL], **fields)
        told.append(message)
        assert reason == ("tool_calls" if message.tool_calls else "stop")
        if not message.tool_calls:
            return told
        messages.append(message.model_dump(exclude={"parsed"}))
        for call in message.tool_calls:
            read = GetWeather.model_validate_json(call.function.arguments)
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": DEGREES[read.city]}
            )


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_of_two_steps(client: OpenAI, stream: bool) -> None:
    first, last = loop(client, stream, "Weather in Paris?")
    assert (first.content or None, first.reasoning) == (None, "I need the weather first.")
    assert stream or first.content is None
    assert first.reasoning_content == first.reasoning
    assert [json.loads(call.function.arguments) for call in first.tool_calls] == [
        {"city": "Paris", "unit": "celsius"}
    ]
    assert (last.content, last.reasoning) == (REMEMBERS, "The tool returned 22.")


@pytest.mark.parametrize("parallel", [True, pytest.param(False, marks=NIGHTLY)])
def test_calls_of_two_tools(client: OpenAI, format_name: str, parallel: bool) -> None:
    told = loop(client, True, "Weather in Paris and Rome?", parallel_tool_calls=parallel)
    has_both = parallel and DIALECTS[format_name].has_many_calls
    assert [len(one.tool_calls or ()) for one in told] == ([2, 0] if has_both else [1, 1, 0])
    assert told[0].reasoning == "Two cities <b>:\nParis, Rome."
    if DIALECTS[format_name].has_preamble:
        assert told[0].content == "I look both up."
    assert told[-1].content == "Paris has 22 degrees and Rome has 18 🙂"


@pytest.mark.parametrize("choice", ["required", pytest.param(NAMED, marks=NIGHTLY)])
def test_a_forced_call_comes_behind_the_thought(client: OpenAI, choice: Any) -> None:
    message, _ = answered(
        client,
        False,
        messages=[{"role": "user", "content": "Weather in Paris?"}],
        tools=[TOOL],
        tool_choice=choice,
    )
    assert message.reasoning == "I need the weather first."
    (call,) = message.tool_calls
    assert GetWeather.model_validate_json(call.function.arguments).city == "Paris"


@pytest.mark.slow
@pytest.mark.nightly
def test_structured_output_comes_behind_the_thought(client: OpenAI) -> None:
    answer = client.chat.completions.parse(model=MODEL, messages=ADA, response_format=Person)
    message: Any = answer.choices[0].message
    assert (message.parsed, message.reasoning) == (Person(name="Ada", age=36), THOUGHT)
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert 0 < (details.reasoning_tokens or 0) < answer.usage.completion_tokens
