"""The scripted model says what its script says, and what a grammar makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.server import MODEL, scripted_server

pytest.importorskip("llguidance")

SCRIPT = [
    {"if": "Think first\\.", "say": "<think>\nSo be it.\n</think>\n\nDone."},
    {"if": "Faces", "say": "a 🙂🙃 b\n日本語 <|im_start|> c"},
    {"if": "A\\..*B\\.", "say": "second"},
    {"if": "A\\.", "say": "first"},
    {"if": "once upon", "say": " a time"},
    {"if": "", "say": "else"},
]


@pytest.fixture(scope="module")
def client(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    script = tmp_path_factory.mktemp("script") / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with scripted_server(script=script) as url, httpx.Client(base_url=url) as asked:
        yield asked


def said(client: httpx.Client, text: str, **fields: Any) -> str:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}]} | fields
    answer = client.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "stop"
    content: str = choice["message"]["content"]
    return content


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("enabled", [False, True])
def test_the_first_rule_that_is_found_decides(
    client: httpx.Client, temperature: int, enabled: bool
) -> None:
    fields = {
        "temperature": temperature,
        "speculative": {"enabled": enabled},
        "skip_special_tokens": False,
    }
    for text, answer in (
        ("Think first.", SCRIPT[0]["say"]),
        ("Faces", SCRIPT[1]["say"]),
        ("A. B.", "second"),
        ("A.", "first"),
        ("B.", "else"),
    ):
        assert said(client, text, **fields).removesuffix("<|im_end|>") == answer


def test_a_raw_prompt_is_answered_behind_the_match(client: httpx.Client) -> None:
    answer = client.post("/completions", json={"model": MODEL, "prompt": "It was once upon"})
    assert answer.json()["choices"][0]["text"] == " a time"


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"type": "array", "items": {"type": "number"}}, "[]"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, None),
        ({"type": "array", "minItems": 2, "items": {"enum": ["x", "y"]}}, None),
    ],
)
def test_a_grammar_that_bans_the_script_is_brought_to_its_end(
    client: httpx.Client, schema: Any, answer: str | None
) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    text = said(client, "A.", response_format=wanted, max_tokens=40)
    json.loads(text)
    assert answer is None or text == answer
