"""The bytes that one token stands for, also where they are no whole character."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


class Vocabulary(Protocol):
    """The part of `tokenizers.Tokenizer` that is used."""

    @property
    def decoder(self) -> Any:
        """None, or an object that describes itself as JSON when it is pickled."""
        ...

    def id_to_token(self, id: int) -> str | None: ...


def token_bytes_of(vocabulary: Vocabulary) -> Callable[[int], bytes]:
    """Return a function from ID to bytes. An ID that the tokenizer does not know has none."""
    decoder = vocabulary.decoder
    steps = list(_flat(json.loads(decoder.__getstate__()))) if decoder is not None else []
    names = {step["type"] for step in steps}
    spaces = [space for step in steps for space in _space(step)]

    def token_bytes(token_id: int) -> bytes:
        piece = vocabulary.id_to_token(token_id) or ""
        if "ByteLevel" in names:
            return _from_letters(piece)
        byte = _BYTE_TOKEN.fullmatch(piece)
        if byte is not None and "ByteFallback" in names:
            return bytes([int(byte[1], base=16)])
        for letter in spaces:
            piece = piece.replace(letter, " ")
        return piece.encode()

    return token_bytes


def _flat(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        yield decoder
    for inner in decoder.get("decoders", ()):
        yield from _flat(inner)


def _space(step: Mapping[str, Any]) -> Iterator[str]:
    """The letter that a decoder turns into a space, if it does."""
    if step["type"] == "Metaspace":
        yield step["replacement"]
    if step["type"] == "Replace" and step["content"] == " " and "String" in step["pattern"]:
        yield step["pattern"]["String"]


def _letters() -> dict[str, int]:
    """GPT-2's alphabet: a visible letter for every byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    letters = {chr(byte): byte for byte in visible}
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_LETTERS = _letters()


def _from_letters(piece: str) -> bytes:
    """Return a piece's bytes as the decoder does. A piece with any other letter is its own text."""
    if all(letter in _LETTERS for letter in piece):
        return bytes(_LETTERS[letter] for letter in piece)
    return piece.encode()
