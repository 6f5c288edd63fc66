"""langchain-openai, unpatched, against the server at $SPECDEC_URL."""

import os
from enum import StrEnum

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai import NotFoundError
from pydantic import BaseModel, Field

SETTINGS = {"base_url": os.environ["SPECDEC_URL"], "api_key": "secret", "max_retries": 0}
CHAT = ChatOpenAI(model="scripted", stream_usage=True, **SETTINGS)
PERSON = {"name": "Ada", "age": 36}


class Unit(StrEnum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class get_weather(BaseModel):  # noqa: N801
    """Weather of a city."""

    city: str = Field(description="Name of the city.")
    unit: Unit


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def two_turns() -> None:
    history = [SystemMessage("Be brief."), HumanMessage("My name is Ada.")]
    first = CHAT.invoke(history)
    assert first.content == "Hello Ada."
    assert first.response_metadata["finish_reason"] == "stop"
    assert first.usage_metadata["output_tokens"] > 0
    second = CHAT.invoke([*history, first, HumanMessage("What is my name?")])
    assert second.content == "Your name is Ada."


def stream() -> None:
    chunks = list(CHAT.stream("Count to five."))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == "1, 2, 3, 4, 5 🙂"
    assert len(chunks) > 3
    assert whole.usage_metadata["output_tokens"] > 0
    assert whole.response_metadata["finish_reason"] == "stop"


def tool_call() -> None:
    for choice in ("required", "get_weather", "auto"):
        bound = CHAT.bind_tools([get_weather], tool_choice=choice)
        question = HumanMessage("Weather in Paris?")
        answer = bound.invoke([question])
        (call,) = answer.tool_calls
        assert call["name"] == "get_weather"
        assert get_weather(**call["args"]) == get_weather(city="Paris", unit=Unit.CELSIUS)
        assert not answer.invalid_tool_calls
        result = ToolMessage("22", tool_call_id=call["id"])
        final = CHAT.bind_tools([get_weather]).invoke([question, answer, result])
        assert final.content == "It is 22 degrees in Paris."


def streamed_tool_call() -> None:
    bound = CHAT.bind_tools([get_weather], tool_choice="required")
    whole = None
    for chunk in bound.stream("Weather in Paris?"):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AIMessage)
    assert [call["args"] for call in whole.tool_calls] == [{"city": "Paris", "unit": "celsius"}]


def structured_output() -> None:
    asked = {"json_schema": "Describe Ada as JSON.", "json_mode": "Describe Ada as JSON."}
    asked["function_calling"] = "Describe Ada by calling Person."
    for method, prompt in asked.items():
        parsed = CHAT.with_structured_output(Person, method=method).invoke(prompt)
        assert parsed == Person(**PERSON), method


def raised(kind, call, *arguments, **fields):
    try:
        call(*arguments, **fields)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors() -> None:
    error = raised(NotFoundError, ChatOpenAI(model="gpt-4o", **SETTINGS).invoke, "Hello")
    assert error.code == "model_not_found", error.code
    raised(ContextOverflowError, CHAT.invoke, "word " * 1100)


for case in (two_turns, stream, tool_call, streamed_tool_call, structured_output, errors):
    case()
    print("ok", case.__name__)
