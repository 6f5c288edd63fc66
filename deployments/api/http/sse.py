"""Server-sent events: JSON bodies on their way to the client, and read by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, NamedTuple

DONE = "[DONE]"
"""Data of the last event of a stream."""
_DATA = "data:"
END = f"{_DATA} {DONE}\n\n"
"""The last event of a stream."""
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})
"""Line ends of Unicode, which JSON allows within a string, and their escapes.

A client that splits a stream by them, as httpx's iter_lines does, would read half an event.
"""


def event_data(line: str) -> str | None:
    """Return the data of a stream's line. None if it has no data, as between two events."""
    return line.removeprefix(_DATA).strip() if line.startswith(_DATA) else None


def server_sent(body: Mapping[str, Any]) -> str:
    """Return `body` as an event of a stream."""
    return f"{_DATA} {_on_one_line(json.dumps(body, ensure_ascii=False))}\n\n"


def _on_one_line(text: str) -> str:
    """Return JSON without anything that ends a line."""
    return text if text.isascii() else text.translate(_LINE_ENDS)


class Frame(NamedTuple):
    """The part that most events of a stream have in common, without the text. It is written
    once."""

    parts: Sequence[str]

    @classmethod
    def around(cls, body: Mapping[str, Any], count: int = 1) -> Frame:
        """Return the frame of a body whose last `count` strings are empty: the text's places."""
        return cls(server_sent(body).rsplit('""', count))

    def with_text(self, text: str) -> str:
        """Return what `server_sent` makes of the body with `text` in it."""
        return _on_one_line(encode_basestring(text)).join(self.parts)
