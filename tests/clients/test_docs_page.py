"""The requests of a documentation page get the answers that the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx

from tests.clients.server import scripted_server

PAGE = Path(__file__).parents[2] / "docs" / "reasoning_and_tools.md"
_PAIR = re.compile(
    r"<!-- request -->\n```json\n(?P<request>.*?)```\n\n"
    r"<!-- answer -->\n```json\n(?P<answer>.*?)```",
    re.DOTALL,
)
_CALL_ID = re.compile(r"call_[0-9a-f]{24}")


def test_the_answers_of_the_page_are_real(demo_model: Path) -> None:
    pairs = [(json.loads(one["request"]), one["answer"]) for one in _PAIR.finditer(_page())]
    assert len(pairs) == _page().count("<!-- request -->") > 0
    with scripted_server(format="hermes") as url, httpx.Client() as client:
        for request, shown in pairs:
            answer = client.post(f"{url}/chat/completions", json=request).json()
            assert _without_ids(answer["choices"][0]) == _without_ids(json.loads(shown))


def _page() -> str:
    return PAGE.read_text(encoding="utf-8")


def _without_ids(choice: dict[str, Any]) -> Any:
    return json.loads(_CALL_ID.sub("call_ID", json.dumps(choice)))
