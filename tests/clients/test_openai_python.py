"""OpenAI's own client for Python, unpatched, over HTTP against the scripted model."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel, Field

from deployments.config.client_limits import ClientLimits
from tests.clients.server import MODEL, scripted_server

pytest.importorskip("llguidance")

QUESTION: Any = {"role": "user", "content": "Weather in Paris?"}
ADA: Any = {"role": "user", "content": "Describe Ada as JSON."}
LONG: Any = {"role": "user", "content": "word " * 1100}


class Unit(StrEnum):
    """Needs `$defs` in the schema."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class GetWeather(BaseModel):
    """Weather of a city."""

    city: str
    unit: Unit


class Person(BaseModel):
    """A person."""

    name: str
    age: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    parents: list[Dog]


class Sheet(BaseModel):
    """What pydantic offers: a union by a tag, recursion, lists, dates and null."""

    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    owners: list[Person]
    born: datetime.date
    note: str | None


TOOL: Any = openai.pydantic_function_tool(GetWeather, name="get_weather")
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def client(demo_model: Path) -> Iterator[OpenAI]:
    with (
        scripted_server(keys=("secret",), keep_alive_s=0.002) as url,  # comments in streams
        OpenAI(base_url=url, api_key="secret", max_retries=0) as asked,
    ):
        yield asked


@pytest.mark.parametrize("replays", ["object", "dump", "text"])
def test_a_chat_of_two_turns(client: OpenAI, replays: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "My name is Ada."}]
    first = client.chat.completions.create(model=MODEL, messages=messages)
    (choice,) = first.choices
    assert first.object == "chat.completion"
    assert first.id.startswith("chatcmpl-")
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello Ada.")
    assert choice.message.tool_calls is None
    assert first.usage is not None
    assert first.usage.total_tokens == first.usage.prompt_tokens + first.usage.completion_tokens
    messages.append(
        {
            "object": choice.message,
            "dump": choice.message.model_dump(),  # with every field that is null
            "text": {"role": "assistant", "content": choice.message.content},
        }[replays]
    )
    messages.append({"role": "user", "content": "What is my name?"})
    second = client.chat.completions.create(model=MODEL, messages=messages)
    assert second.choices[0].message.content == "Your name is Ada."


def test_a_stream_has_a_role_texts_one_finish_reason_and_the_usage(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Count to five."}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *told, last = chunks
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk.model for chunk in chunks} == {MODEL}
    choices = [choice for chunk in told for choice in chunk.choices]
    assert len(choices) == len(told)
    assert {choice.index for choice in choices} == {0}
    assert choices[0].delta.role == "assistant"
    assert [choice.delta.role for choice in choices[1:]] == [None] * (len(choices) - 1)
    assert "".join(c.delta.content or "" for c in choices) == "1, 2, 3, 4, 5 🙂"
    reasons = [choice.finish_reason for choice in choices]
    assert reasons == [None] * (len(choices) - 1) + ["stop"]
    assert (last.choices, [chunk.usage for chunk in told]) == ([], [None] * len(told))
    assert last.usage is not None
    assert last.usage.completion_tokens > 5


def test_a_stream_without_usage_ends_with_the_finish_reason(client: OpenAI) -> None:
    *_, last = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Count to five."}], stream=True
    )
    assert last.choices[0].finish_reason == "stop"
    assert last.usage is None


@pytest.mark.parametrize("choice", ["required", "auto", NAMED])
def test_a_pydantic_tool_is_called_and_its_result_is_read(client: OpenAI, choice: Any) -> None:
    asked: dict[str, Any] = {"model": MODEL, "tools": [TOOL]}
    first = client.chat.completions.parse(messages=[QUESTION], tool_choice=choice, **asked)
    message = first.choices[0].message
    assert first.choices[0].finish_reason == ("stop" if choice == NAMED else "tool_calls")
    assert message.content is None
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert call.id
    assert call.function.name == "get_weather"
    assert call.function.parsed_arguments == GetWeather(city="Paris", unit=Unit.CELSIUS)
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "22"}
    for replayed in (message, message.model_dump(), message.model_dump(exclude_none=True)):
        history: list[Any] = [QUESTION, replayed, result]
        second = client.chat.completions.create(messages=history, **asked)
        assert second.choices[0].message.content == "It is 22 degrees in Paris."


@pytest.mark.parametrize("choice", ["required", "auto", NAMED])
def test_a_streamed_call_is_put_together(client: OpenAI, choice: Any) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=[QUESTION], tools=[TOOL], tool_choice=choice
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.done" in kinds
    assert final.finish_reason == ("stop" if choice == NAMED else "tool_calls")
    assert final.message.tool_calls is not None
    (call,) = final.message.tool_calls
    assert call.function.parsed_arguments == GetWeather(city="Paris", unit=Unit.CELSIUS)


def test_a_call_is_complete_even_if_it_arrives_in_one_piece(demo_model: Path) -> None:
    """As after a round that accepts the end of the call and the end of the answer."""
    with scripted_server(stream_interval=64) as url, OpenAI(base_url=url, api_key="-") as asked:
        test_a_streamed_call_is_put_together(asked, "auto")


def test_structured_output_is_parsed(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": [ADA], "response_format": Person}
    whole = client.chat.completions.parse(**asked)
    assert whole.choices[0].message.parsed == Person(name="Ada", age=36)
    assert whole.choices[0].message.refusal is None
    with client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == Person(name="Ada", age=36)


def test_nested_models_are_parsed(client: OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Describe Rex as JSON."}],
        response_format=Sheet,
    )
    rex = Dog(kind="dog", parents=[Dog(kind="dog", parents=[])])
    owners, born = [Person(name="Ada", age=36)], datetime.date(2020, 5, 17)
    expected = Sheet(pet=rex, owners=owners, born=born, note=None)
    assert answer.choices[0].message.parsed == expected


def test_json_mode_gives_an_object(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[ADA], response_format={"type": "json_object"}
    )
    assert json.loads(answer.choices[0].message.content or "") == {"name": "Ada", "age": 36}


@pytest.mark.parametrize(
    ("fields", "kind", "code", "param"),
    [
        ({"model": "gpt-4o"}, openai.NotFoundError, "model_not_found", "model"),
        ({"messages": [LONG]}, openai.BadRequestError, "context_length_exceeded", "messages"),
        ({"top_p": 3}, openai.BadRequestError, "decimal_above_max_value", "top_p"),
        ({"temperature": "hot"}, openai.BadRequestError, "invalid_type", "temperature"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_is_the_clients_own_exception_with_a_code(
    client: OpenAI,
    fields: dict[str, Any],
    kind: type[openai.APIStatusError],
    code: str,
    param: str,
    stream: bool,
) -> None:
    asked = {"model": MODEL, "messages": [QUESTION], "stream": stream} | fields
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**asked)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_a_wrong_key_is_an_authentication_error(client: OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        client.with_options(api_key="wrong").models.list()
    assert caught.value.code == "invalid_api_key"


def test_a_key_that_asks_too_much_gets_a_rate_limit_error(demo_model: Path) -> None:
    limits = ClientLimits(requests_per_minute=1)
    with (
        scripted_server(keys=("secret",), limits_per_key=limits) as url,
        OpenAI(base_url=url, api_key="secret", max_retries=0) as asked,
    ):
        asked.chat.completions.create(model=MODEL, messages=[ADA])
        with pytest.raises(openai.RateLimitError) as caught:
            asked.chat.completions.create(model=MODEL, messages=[ADA])
    assert caught.value.code == "rate_limit_exceeded"
    assert 0 < int(caught.value.response.headers["retry-after"]) <= 60


def test_the_responses_route_points_to_chat_completions(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="/v1/chat/completions"):
        client.responses.create(model=MODEL, input="Hello")
