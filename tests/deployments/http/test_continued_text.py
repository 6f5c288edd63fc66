"""An answer continues its prompt's text over HTTP, in every form that an answer has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deployments.api.http.routes import build_http_app
from deployments.config.service import SpecMetrics
from deployments.ingress.auth import Access
from deployments.ingress.echo import prompt_offsets
from deployments.text.tokenizer import TextModel
from tests.deployments.ingress.test_client_resume import ScriptedPool, service_of
from tests.deployments.text.tokenizers import text_model

PROMPT, ANSWER = "The capital of France is", " Paris. 日 is"
SPACED = ["llama 2", "metaspace first", "metaspace always", "byte level"]


def answer_ids(text: TextModel, prompt: str = PROMPT, answer: str = ANSWER) -> tuple[int, ...]:
    ids = text.encode(prompt)
    whole = text.encode(prompt + answer)
    assert whole[: len(ids)] == ids, "the answer's text begins a token of its own"
    return whole[len(ids) :]


@pytest.fixture(params=SPACED)
def text(request: pytest.FixtureRequest, tmp_path: Path) -> TextModel:
    return text_model(request.param, tmp_path, begins=True)


@pytest.fixture
def client(text: TextModel) -> Iterator[TestClient]:
    service = service_of(text, ScriptedPool(answer_ids(text)))
    app = build_http_app(
        service, Access({}, "127.0.0.1"), max_body_bytes=10_000, metrics=SpecMetrics.NONE
    )
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def ask(client: TestClient, text: TextModel, **fields: Any) -> list[dict[str, Any]]:
    """The choices of an answer, or of all its chunks."""
    body = {"model": "m", "prompt": PROMPT, "max_tokens": len(answer_ids(text)), "seed": 1}
    answer = client.post("/v1/completions", json=body | fields)
    assert answer.status_code == 200, answer.text
    if "stream" not in fields:
        return answer.json()["choices"]
    lines = [line for line in answer.text.split("\n\n") if line][:-1]
    return [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]


@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"skip_special_tokens": False}, {"logprobs": 1}])
def test_the_text_begins_with_its_space(
    client: TestClient, text: TextModel, fields: dict[str, Any]
) -> None:
    told = ask(client, text, **fields)
    assert [choice["text"] for choice in told] == [ANSWER] * fields.get("n", 1)
    assert "".join(chunk["text"] for chunk in ask(client, text, stream=True)) == ANSWER


@pytest.mark.parametrize("as_ids", [False, True])
def test_an_echo_and_its_answer_are_one_text(
    client: TestClient, text: TextModel, as_ids: bool
) -> None:
    prompt: Any = list(text.encode_part(PROMPT)) if as_ids else PROMPT
    for fields in ({}, {"n": 2}, {"skip_special_tokens": False}):
        for choice in ask(client, text, prompt=prompt, echo=True, **fields):
            assert choice["text"] == PROMPT + ANSWER
    chunks = ask(client, text, prompt=prompt, echo=True, stream=True)
    assert "".join(chunk["text"] for chunk in chunks) == PROMPT + ANSWER


def test_an_echo_leaves_an_unfinished_character_to_the_answer(
    client: TestClient, text: TextModel
) -> None:
    first_byte = text.encode_part("日")[-3]
    prompt = [*text.encode_part("is日"), first_byte]
    (choice,) = ask(client, text, prompt=prompt)
    assert choice["text"] == "\ufffd" + ANSWER
    (choice,) = ask(client, text, prompt=prompt, echo=True)
    assert choice["text"] == "is日\ufffd" + ANSWER


def test_a_resumed_stream_continues_in_the_middle(client: TestClient, text: TextModel) -> None:
    ids = answer_ids(text)
    for count in range(1, len(ids)):
        resume = {"token_ids": [list(ids[:count])], "seed": 1}
        rest = ask(client, text, resume=resume, stream=True, return_token_ids=True)
        told = text.decode((*text.encode(PROMPT), *ids[:count])).rstrip("\ufffd")
        assert told + "".join(chunk["text"] for chunk in rest) == PROMPT + ANSWER
        (whole,) = ask(client, text, resume=resume)
        assert whole["text"] == ANSWER


def test_the_end_of_a_prompt_is_continued_too(client: TestClient, text: TextModel) -> None:
    (choice,) = ask(client, text, truncate_prompt_tokens=1, echo=True)
    assert choice["text"].strip() == "is" + ANSWER
    assert choice["text"].endswith("is" + ANSWER)


@pytest.mark.parametrize("kind", SPACED)
@pytest.mark.parametrize("begins", [False, True])
def test_offsets_are_places_in_the_echoed_text(kind: str, begins: bool, tmp_path: Path) -> None:
    """Also where the tokenizer puts a special token before it."""
    text = text_model(kind, tmp_path, begins=begins)
    ids = text.encode(PROMPT)
    offsets = prompt_offsets(text, ids, PROMPT)
    words = {place: PROMPT[place:].split(" ")[1] for place in offsets[-4:]}
    assert list(words.values()) == ["capital", "of", "France", "is"]
    assert offsets[0] == 0
    assert list(offsets) == sorted(offsets)
    assert offsets[-1] == PROMPT.rindex(" is")
