"""pydantic-ai, unpatched, against the server at $SPECDEC_URL."""

import asyncio
import os
from enum import StrEnum

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelNotFoundError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider(base_url=os.environ["SPECDEC_URL"], api_key="secret")
MODEL = OpenAIChatModel("scripted", provider=PROVIDER)


class Unit(StrEnum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


ADA = Person(name="Ada", age=36)


def two_turns() -> None:
    agent = Agent(MODEL, instructions="Be brief.")
    first = agent.run_sync("My name is Ada.")
    assert first.output == "Hello Ada."
    second = agent.run_sync("What is my name?", message_history=first.all_messages())
    assert second.output == "Your name is Ada."


def stream() -> None:
    async def run() -> None:
        async with Agent(MODEL).run_stream("Count to five.") as result:
            texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
        assert "".join(texts) == "1, 2, 3, 4, 5 🙂"
        assert result.usage.output_tokens > 5

    asyncio.run(run())


def tool_call() -> None:
    agent = Agent(MODEL)
    asked = []

    @agent.tool_plain
    def get_weather(city: str, unit: Unit) -> str:
        """Weather of a city."""
        asked.append((city, unit))
        return "22"

    assert agent.run_sync("Weather in Paris?").output == "It is 22 degrees in Paris."
    assert asked == [("Paris", Unit.CELSIUS)]


def streamed_tool_call() -> None:
    async def run() -> None:
        agent = Agent(MODEL, output_type=ToolOutput(Person, name="Person"))
        async with agent.run_stream("Describe Ada by calling Person.") as result:
            assert await result.get_output() == ADA

    asyncio.run(run())


def structured_output() -> None:
    for output_type, prompt in (
        (ToolOutput(Person, name="Person"), "Describe Ada by calling Person."),
        (NativeOutput(Person), "Describe Ada as JSON."),
        (PromptedOutput(Person), "Describe Ada as JSON."),
    ):
        assert Agent(MODEL, output_type=output_type).run_sync(prompt).output == ADA


def raised(kind, call, *arguments, **fields):
    try:
        call(*arguments, **fields)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors() -> None:
    unknown = Agent(OpenAIChatModel("gpt-4o", provider=PROVIDER))
    assert raised(ModelNotFoundError, unknown.run_sync, "Hello").status_code == 404
    raised(ModelContextWindowExceededError, Agent(MODEL).run_sync, "word " * 1100)


for case in (two_turns, stream, tool_call, streamed_tool_call, structured_output, errors):
    case()
    print("ok", case.__name__)
