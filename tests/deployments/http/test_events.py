"""What is written once stands around every text as if the whole event had been written."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.http.responses import Response
from deployments.api.http.sse import DONE, Frame, event_data, server_sent
from deployments.ingress.output import OutputChunk
from specdec_core.config import SchedulerConfig, SpecMethod, SpeculationConfig
from tests.deployments.http_server import completion, server

PLAIN = SchedulerConfig(speculation=SpeculationConfig(method=SpecMethod.NONE))


@given(st.text())
def test_a_framed_text_is_the_event_of_its_body(text: str) -> None:
    def body(content: str) -> dict[str, Any]:
        return {"id": 'a ""', "empty": "", "choices": [{"delta": {"content": content}}]}

    assert Frame.around(body("")).with_text(text) == server_sent(body(text))


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_sent_is_what_is_read(body: dict[str, str]) -> None:
    data = event_data(server_sent(body))
    assert data is not None
    assert json.loads(data) == body


LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Where str.splitlines ends a line."""


@given(st.text(), st.text(alphabet=LINE_ENDS + "ab"))
def test_whoever_splits_by_lines_reads_whole_events(name: str, text: str) -> None:
    """As httpx's iter_lines does, by Unicode's line ends too."""
    event = server_sent({name: text})
    (line, end) = event.splitlines()
    assert json.loads(event_data(line) or "") == {name: text}
    assert end == ""
    framed = Frame.around({name: ""}).with_text(text)
    assert framed == event


@pytest.mark.parametrize(
    ("line", "data"),
    [
        ("data: [DONE]\n", DONE),
        ('data:{"a": 1}\r\n', '{"a": 1}'),
        ("\n", None),
        (": still there\n", None),
        ("event: ping\n", None),
    ],
)
def test_lines_between_events_say_nothing(line: str, data: str | None) -> None:
    assert event_data(line) == data


def written_whole(response: Response, position: int, chunk: OutputChunk) -> str:
    return server_sent(response.chunk(position, chunk))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_is_byte_by_byte_the_one_whose_chunks_are_written_whole(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def events() -> list[str]:
        body = completion(seed=3, stream=True, request_id='a "" b')
        if "chat" in path:
            body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        async with server(config=PLAIN) as (client, _):
            answer = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return re.sub('"created": [0-9]+', "", answer.text).split("\n\n")

    framed = await events()
    monkeypatch.setattr(Response, "event", written_whole)
    assert len(framed) > 10
    assert framed == await events()
