"""LiteLLM, unpatched, against the server at $SPECDEC_URL."""

import json
import os
from enum import StrEnum

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # downloads nothing

import litellm
from pydantic import BaseModel

SETTINGS = {"api_base": os.environ["SPECDEC_URL"], "api_key": "secret", "num_retries": 0}
MODEL = "openai/scripted"


class Unit(StrEnum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Weather(BaseModel):
    """Weather of a city."""

    city: str
    unit: Unit


class Person(BaseModel):
    """A person."""

    name: str
    age: int


TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": Weather.model_json_schema()},
}
QUESTION = {"role": "user", "content": "Weather in Paris?"}


def chat(messages, model=MODEL, **fields):
    return litellm.completion(model=model, messages=messages, **SETTINGS, **fields)


def two_turns() -> None:
    messages = [{"role": "user", "content": "My name is Ada."}]
    first = chat(messages)
    assert first.choices[0].message.content == "Hello Ada."
    assert first.choices[0].finish_reason == "stop"
    messages += [first.choices[0].message, {"role": "user", "content": "What is my name?"}]
    assert chat(messages).choices[0].message.content == "Your name is Ada."
    messages[1] = first.choices[0].message.model_dump()
    assert chat(messages).choices[0].message.content == "Your name is Ada."


def stream() -> None:
    messages = [{"role": "user", "content": "Count to five."}]
    chunks = list(chat(messages, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "1, 2, 3, 4, 5 🙂"
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens > 5


def tool_call() -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", named, "auto"):
        answer = chat([QUESTION], tools=[TOOL], tool_choice=choice)
        message = answer.choices[0].message
        (call,) = message.tool_calls
        assert call.function.name == "get_weather"
        assert Weather.model_validate_json(call.function.arguments).city == "Paris"
        # LiteLLM writes "tool_calls" for every call, also where the server ends with "stop".
        assert answer.choices[0].finish_reason == "tool_calls"
        result = {"role": "tool", "tool_call_id": call.id, "content": "22"}
        final = chat([QUESTION, message, result], tools=[TOOL], parallel_tool_calls=False)
        assert final.choices[0].message.content == "It is 22 degrees in Paris."


def streamed_tool_call() -> None:
    chunks = list(chat([QUESTION], tools=[TOOL], tool_choice="required", stream=True))
    (call,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris", "unit": "celsius"}


def structured_output() -> None:
    messages = [{"role": "user", "content": "Describe Ada as JSON."}]
    for wanted in (Person, {"type": "json_object"}):
        content = chat(messages, response_format=wanted).choices[0].message.content
        assert Person.model_validate_json(content) == Person(name="Ada", age=36)


def raised(kind, call, *arguments, **fields):
    try:
        call(*arguments, **fields)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors() -> None:
    raised(litellm.NotFoundError, chat, [QUESTION], model="openai/gpt-4o")
    long = {"role": "user", "content": "word " * 1100}
    raised(litellm.ContextWindowExceededError, chat, [long])


for case in (two_turns, stream, tool_call, streamed_tool_call, structured_output, errors):
    case()
    print("ok", case.__name__)
