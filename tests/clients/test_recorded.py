"""Requests that real clients sent get a good answer, or the error that the client expects.

`python -m tests.clients.record` has recorded them; those of Open WebUI and Continue are written
from what these programs send.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.environments import FOLDER
from tests.clients.record import LOOP_FORMAT, LOOPED
from tests.clients.recording import RecordedRequest, read_recording
from tests.clients.server import scripted_server
from tests.clients.shapes import check_answer, check_error

pytest.importorskip("llguidance")

FILES = sorted(FOLDER.glob("*/requests.json"))
LOOP_FILES = sorted(FOLDER.glob("*/loop_requests.json"))


def _cases(files: list[Path]) -> list[Any]:
    return [
        pytest.param(request, id=f"{file.parent.name}-{number}")
        for file in files
        for number, request in enumerate(read_recording(file))
    ]


def _loop_cases() -> list[Any]:
    """Each client's first request of each kind; the others run at night."""
    seen = set()
    cases = []
    for case in _cases(LOOP_FILES):
        body = case.values[0].body
        client = case.id.rpartition("-")[0]
        fields = (name for name in ("stream", "response_format") if body.get(name))
        kind = (client, *fields, body["messages"][-1]["role"], str(body.get("tool_choice")))
        marks = (pytest.mark.slow, pytest.mark.nightly) if kind in seen else ()
        cases.append(pytest.param(*case.values, id=case.id, marks=marks))
        seen.add(kind)
    return cases


@pytest.fixture(scope="module")
def client(demo_model: Path) -> Iterator[httpx.Client]:
    with scripted_server() as url, httpx.Client(base_url=url.removesuffix("/v1")) as asked:
        yield asked


@pytest.fixture(scope="module")
def reasoning_client() -> Iterator[httpx.Client]:
    with (
        scripted_server(format=LOOP_FORMAT) as url,
        httpx.Client(base_url=url.removesuffix("/v1")) as asked,
    ):
        yield asked


@pytest.mark.parametrize("request_", _cases(FILES))
def test_a_recorded_request_is_answered(client: httpx.Client, request_: RecordedRequest) -> None:
    _check(client, request_)


@pytest.mark.parametrize("request_", _loop_cases())
def test_a_recorded_request_to_a_model_that_reasons_is_answered(
    reasoning_client: httpx.Client, request_: RecordedRequest
) -> None:
    _check(reasoning_client, request_)


def _check(client: httpx.Client, request_: RecordedRequest) -> None:
    answer = client.request(
        request_.method,
        request_.path,
        headers=request_.headers,
        content=None if request_.body is None else json.dumps(request_.body),
    )
    assert answer.status_code == request_.status, answer.text
    if request_.status >= 400:
        check_error(answer.text)
    elif request_.body is not None:
        assert '"warnings"' not in answer.text
        check_answer(request_.body, answer.text)


def _bodies(file: Path) -> list[dict[str, Any]]:
    return [request.body for request in read_recording(file) if request.body]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_recording_has_every_kind_of_request(file: Path) -> None:
    bodies = _bodies(file)
    chats = [body for body in bodies if "messages" in body]
    roles = [[message["role"] for message in body["messages"]] for body in chats]
    assert any("assistant" in told[:-1] and told[-1] == "user" for told in roles), "two turns"
    assert any(body.get("stream") for body in bodies)
    assert any(body.get("tools") for body in bodies)
    assert any(request.status >= 400 for request in read_recording(file))
    if file.parent.name != "continue_dev":  # asks for no structured output
        assert any(body.get("response_format") for body in bodies)


def test_every_loop_is_recorded_with_results_of_tools() -> None:
    assert [file.parent.name for file in LOOP_FILES] == list(LOOPED)
    for file in LOOP_FILES:
        messages = [message for body in _bodies(file) for message in body["messages"]]
        assert any(message["role"] == "tool" for message in messages)
        assert any(message.get("tool_calls") for message in messages)


@pytest.mark.parametrize("file", FILES + LOOP_FILES, ids=lambda file: file.parent.name)
def test_a_recording_has_no_key(file: Path) -> None:
    text = file.read_text()
    assert "secret" not in text
    assert "sk-" not in text
