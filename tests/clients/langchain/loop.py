"""LangChain, unpatched: tools in a loop with a model that reasons.

`ChatOpenAI` leaves reasoning out. `ChatDeepSeek` reads it into `additional_kwargs`.
"""

import os
from typing import Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_deepseek import ChatDeepSeek
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

URL = os.environ["SPECDEC_URL"]
SETTINGS = {"model": "scripted", "api_key": "secret", "max_retries": 0, "stream_usage": True}
DEEPSEEK = ChatDeepSeek(api_base=URL, **SETTINGS)
OPENAI = ChatOpenAI(base_url=URL, **SETTINGS)
DEGREES = {"Paris": "22", "Rome": "18"}


class get_weather(BaseModel):  # noqa: N801
    """Weather of a city."""

    city: str
    unit: Literal["celsius", "fahrenheit"]


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def whole(chat, messages):
    return chat.invoke(messages)


def streamed(chat, messages):
    answer, *others = chat.stream(messages)
    for chunk in others:
        answer += chunk
    return answer


def conversation(answer, chat, question, **fields):
    """All answers of the loop; each thought is kept in its message."""
    chat = chat.bind_tools([get_weather], **fields)
    messages = [HumanMessage(question)]
    answers = []
    while not answers or answers[-1].tool_calls:
        answers.append(answer(chat, messages))
        messages.append(answers[-1])
        for call in answers[-1].tool_calls:
            city = get_weather(**call["args"]).city
            messages.append(ToolMessage(DEGREES[city], tool_call_id=call["id"]))
    return answers


def thought_of(message):
    thought = message.additional_kwargs.get("reasoning_content")
    parts = [part["reasoning"] for part in message.content_blocks if part["type"] == "reasoning"]
    assert parts == ([thought] if thought else [])
    return thought


def tool_loop() -> None:
    for answer in (whole, streamed):
        first, last = conversation(answer, DEEPSEEK, "Weather in Paris?")
        assert first.content == ""
        assert thought_of(first) == "I need the weather first."
        assert first.response_metadata["finish_reason"] == "tool_calls"
        assert thought_of(last) == "The tool returned 22."
        assert last.content == "It is 22 degrees in Paris.", last.content  # sends no reasoning
        for message in (first, last):
            usage = message.usage_metadata
            thinking = usage["output_token_details"]["reasoning"]
            assert 0 < thinking < usage["output_tokens"]


def parallel_calls() -> None:
    for answer in (whole, streamed):
        for parallel in (True, False):
            fields = {"parallel_tool_calls": parallel}
            first, *_, last = conversation(answer, DEEPSEEK, "Weather in Paris and Rome?", **fields)
            assert thought_of(first) == "Two cities <b>:\nParis, Rome."
            assert first.content == "I look both up."
            assert parallel or len(first.tool_calls) == 1
            assert last.content == "Paris has 22 degrees and Rome has 18 🙂"


def forced_calls() -> None:
    for choice in ("required", "get_weather"):
        chat = DEEPSEEK.bind_tools([get_weather], tool_choice=choice)
        for answer in (whole, streamed):
            message = answer(chat, [HumanMessage("Weather in Paris?")])
            assert thought_of(message) == "I need the weather first."
            assert [call["args"]["city"] for call in message.tool_calls] == ["Paris"]


def structured_output() -> None:
    # ChatDeepSeek turns json_schema into a forced call.
    for chat, method in ((DEEPSEEK, "json_mode"), (OPENAI, "json_schema")):
        asked = chat.with_structured_output(Person, method=method)
        assert asked.invoke("Describe Ada as JSON.") == Person(name="Ada", age=36)


def openai_class() -> None:
    for answer in (whole, streamed):
        first, last = conversation(answer, OPENAI, "Weather in Paris?")
        assert thought_of(first) is None
        assert first.content == ""
        assert last.content == "It is 22 degrees in Paris."


for case in (tool_loop, parallel_calls, forced_calls, structured_output, openai_class):
    case()
    print("ok", case.__name__)
print("ok loop")
