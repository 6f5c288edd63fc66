"""instructor, unpatched, against the server at $SPECDEC_URL."""

import os
from enum import StrEnum

import instructor
from instructor import Mode
from instructor.core.exceptions import InstructorRetryException
from openai import BadRequestError, NotFoundError, OpenAI
from pydantic import BaseModel

OPENAI = OpenAI(base_url=os.environ["SPECDEC_URL"], api_key="secret", max_retries=0)


class Unit(StrEnum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class get_weather(BaseModel):  # noqa: N801
    """Weather of a city."""

    city: str
    unit: Unit


class Person(BaseModel):
    """A person."""

    name: str
    age: int


ADA = {"name": "Ada", "age": 36}


def client(mode: Mode):
    return instructor.from_openai(OPENAI, mode=mode, model="scripted")


def two_turns() -> None:
    class Greeting(BaseModel):
        text: str

    asked = client(Mode.JSON_SCHEMA)
    messages = [{"role": "user", "content": "Greet Ada as JSON."}]
    first, completion = asked.create_with_completion(messages, response_model=Greeting)
    assert first.text == "Hello Ada."
    messages += [completion.choices[0].message.model_dump()]
    messages += [{"role": "user", "content": "Describe Ada as JSON."}]
    assert asked.create(messages=messages, response_model=Person).model_dump() == ADA


def stream() -> None:
    prompt = [{"role": "user", "content": "Describe Ada by calling PartialPerson."}]
    partials = list(client(Mode.TOOLS).create_partial(messages=prompt, response_model=Person))
    assert partials[-1].model_dump() == ADA


def tool_call() -> None:
    prompt = [{"role": "user", "content": "Weather in Paris?"}]
    called = client(Mode.TOOLS).create(messages=prompt, response_model=get_weather)
    assert (called.city, called.unit) == ("Paris", Unit.CELSIUS)


def structured_output() -> None:
    for mode in (Mode.JSON_SCHEMA, Mode.JSON, Mode.MD_JSON):
        prompt = [{"role": "user", "content": "Describe Ada as JSON."}]
        assert client(mode).create(messages=prompt, response_model=Person).model_dump() == ADA, mode


def raised(kind, call, *arguments, **fields):
    try:
        call(*arguments, **fields)
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


def errors() -> None:
    for model, text, kind, code in (
        ("gpt-4o", "Hello", NotFoundError, "model_not_found"),
        ("scripted", "word " * 1100, BadRequestError, "context_length_exceeded"),
    ):
        prompt = [{"role": "user", "content": text}]
        asked = instructor.from_openai(OPENAI, mode=Mode.TOOLS, model=model)
        error = raised(
            (InstructorRetryException, kind), asked.create, messages=prompt, response_model=Person
        )
        assert kind.__name__ in repr(error) or code in str(error), error


for case in (two_turns, stream, tool_call, structured_output, errors):
    case()
    print("ok", case.__name__)
