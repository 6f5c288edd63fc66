"""Server-sent events: JSON bodies on their way to the client, and read by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any, NamedTuple

DONE = "[DONE]"
"""What the last event of a stream says."""
_DATA = "data:"
END = f"{_DATA} {DONE}\n\n"
"""That event."""


def event_data(line: str) -> str | None:
    """What a line of a stream says; None: nothing, as between two events."""
    return line.removeprefix(_DATA).strip() if line.startswith(_DATA) else None


def server_sent(body: Mapping[str, Any]) -> str:
    """As an event of a stream."""
    return f"{_DATA} {json.dumps(body, ensure_ascii=False)}\n\n"


class Frame(NamedTuple):
    """An event without its text: what most events of a stream have in common, written once."""

    head: str
    tail: str

    @classmethod
    def around(cls, body: Mapping[str, Any]) -> Frame:
        """Of a body whose last string is empty: there the text will stand."""
        head, _, tail = server_sent(body).rpartition('""')
        return cls(head, tail)

    def with_text(self, text: str) -> str:
        """What `server_sent` makes of the body with `text` in it."""
        return f"{self.head}{encode_basestring(text)}{self.tail}"
