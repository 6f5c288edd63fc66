"""pydantic-ai, unpatched: tools in a loop with a model that reasons."""

import asyncio
import os
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent, ModelSettings, NativeOutput
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider(base_url=os.environ["SPECDEC_URL"], api_key="secret")
MODEL = OpenAIChatModel("scripted", provider=PROVIDER)
DEGREES = {"Paris": "22", "Rome": "18"}


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """Weather of a city."""
    return DEGREES[city]


def whole(agent, question):
    return agent.run_sync(question)


def streamed(agent, question):
    """With `run_stream`, the text before a call would be the result, and the loop would end."""

    async def read(_context, events):
        async for _ in events:
            pass

    return asyncio.run(agent.run(question, event_stream_handler=read))


def responses(result):
    """The model's answers, each with its thought, text and calls."""
    for message in result.all_messages():
        if isinstance(message, ModelResponse):
            thoughts = [part.content for part in message.parts if isinstance(part, ThinkingPart)]
            texts = [part.content for part in message.parts if isinstance(part, TextPart)]
            calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
            yield "".join(thoughts), "".join(texts), calls


def tool_loop() -> None:
    agent = Agent(MODEL, tools=[get_weather])
    for answer in (whole, streamed):
        first, last = responses(answer(agent, "Weather in Paris?"))
        assert first[:2] == ("I need the weather first.", "")
        text = "It is 22 degrees in Paris. I looked it up as planned."  # sends the reasoning
        assert last == ("The tool returned 22.", text, []), last


def parallel_calls() -> None:
    for parallel in (True, False):
        settings = ModelSettings(parallel_tool_calls=parallel)
        agent = Agent(MODEL, tools=[get_weather], model_settings=settings)
        for answer in (whole, streamed):
            first, *others = responses(answer(agent, "Weather in Paris and Rome?"))
            assert first[:2] == ("Two cities <b>:\nParis, Rome.", "I look both up.")
            assert parallel or len(first[2]) == 1
            assert others[-1][1] == "Paris has 22 degrees and Rome has 18 🙂"


def structured_output() -> None:
    agent = Agent(MODEL, output_type=NativeOutput(Person))
    for answer in (whole, streamed):
        (only,) = responses(answer(agent, "Describe Ada as JSON."))
        assert only[0] == 'Ada is 36: {"age": 36}.'
        assert Person.model_validate_json(only[1]) == Person(name="Ada", age=36)


def usage() -> None:
    used = Agent(MODEL).run_sync("My name is Ada.").usage
    assert 0 < used.details["reasoning_tokens"] < used.output_tokens


def two_turns() -> None:
    agent = Agent(MODEL)
    first = agent.run_sync("My name is Ada.")
    second = agent.run_sync("What is my name?", message_history=first.all_messages())
    assert second.output == "Your name is Ada."


for case in (tool_loop, parallel_calls, structured_output, usage, two_turns):
    case()
    print("ok", case.__name__)
print("ok loop")
