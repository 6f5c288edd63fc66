"""Text of token IDs as they arrive: characters are never split, stop strings never leak.

A token may hold a part of a character, so its bytes are kept. Stop strings are found across
tokens, special tokens included, whether these are shown or not.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol


class StopStrings:
    """Cuts text at the first stop string and holds back what may be the beginning of one.

    Hidden text, such as that of a special token, takes part in the search and is not shown.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self._hidden: list[tuple[int, int]] = []  # start and end of hidden parts of the held text
        self._num_exempt = 0
        self.stop_string: str | None = None

    def add(self, text: str, *, is_exempt: bool = False, is_hidden: bool = False) -> str:
        """Return the text that may be shown now: nothing more once `stop_string` is set. A stop
        string that ends in exempt text is text like any other."""
        if self.stop_string is not None:
            return ""
        if is_hidden:
            self._hidden.append((len(self._held), len(self._held) + len(text)))
        self._held += text
        if is_exempt:
            self._num_exempt = len(self._held)
        starts = {stop: self._held.find(stop, self._earliest(stop)) for stop in self._stops}
        hits = [(start, stop) for stop, start in starts.items() if start >= 0]
        if hits:
            start, self.stop_string = min(hits)
            return self._take(start)
        return self._take(len(self._held) - self._num_suspicious())

    def flush(self) -> str:
        """Return what was held back, when no stop string came of it."""
        return self._take(len(self._held)) if self.stop_string is None else ""

    def _take(self, count: int) -> str:
        """Remove `count` characters from the held text; return those that are shown."""
        taken, shown, done = self._held[:count], "", 0
        for start, end in self._hidden:
            shown += taken[done:start]
            done = end
        shown += taken[done:]
        self._held = self._held[count:]
        self._hidden = [(max(0, start - count), end - count) for start, end in self._hidden]
        self._hidden = [span for span in self._hidden if span[1] > 0]
        self._num_exempt = max(0, self._num_exempt - count)
        return shown

    def _earliest(self, stop: str) -> int:
        """Where `stop` may begin, so that it ends after what is exempt."""
        return max(0, self._num_exempt - len(stop) + 1)

    def _num_suspicious(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0


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

    def bytes_of_letters(token_id: int) -> bytes:
        piece = vocabulary.id_to_token(token_id) or ""
        try:
            return bytes(map(_LETTERS.__getitem__, piece))
        except KeyError:  # as the decoder does: with any other letter it is its own text
            return piece.encode()

    def bytes_of_text(token_id: int) -> bytes:
        piece = vocabulary.id_to_token(token_id) or ""
        byte = _BYTE_TOKEN.fullmatch(piece)
        if byte is not None and "ByteFallback" in names:
            return bytes([int(byte[1], base=16)])
        for letter in spaces:
            piece = piece.replace(letter, " ")
        return piece.encode()

    return bytes_of_letters if "ByteLevel" in names else bytes_of_text


def _flat(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        yield decoder
    for inner in decoder.get("decoders", ()):
        yield from _flat(inner)


def _space(step: Mapping[str, Any]) -> Iterator[str]:
    """Yield the letter that a decoder turns into a space, if it does."""
    if step["type"] == "Metaspace":
        yield step["replacement"]
    if step["type"] == "Replace" and step["content"] == " " and "String" in step["pattern"]:
        yield step["pattern"]["String"]


def _letters() -> dict[str, int]:
    """GPT-2's alphabet: a visible letter for every byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    letters = {chr(byte): byte for byte in visible}
    return letters | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_LETTERS = _letters()


_INCOMPLETE = "\ufffd"
"""Character that a decoder writes for bytes that are not a whole character yet."""
_MAX_WINDOW = 3
"""Maximum IDs that stay in the window. A longer one is decoded less often, at a higher cost."""
_MAX_WAITING = 8
"""Maximum IDs that wait for the rest of a character, which has at most 4 bytes."""
_MAX_UNFINISHED = 64
"""Maximum IDs of a prompt's end that are searched for the end of a character."""
_NUM_CONTEXT = 8
"""Prompt IDs that an answer is decoded after."""
_CONTINUING = frozenset(bytes([byte]) for byte in range(0x80, 0xC0))
"""First bytes of a text that begins within a UTF-8 character."""

Decode = Callable[[Sequence[int]], str]


class IncrementalDetokenizer:
    """Text of a growing list of IDs, each decoded after a window of the IDs before it.

    An ID's text may depend on its neighbours. SentencePiece drops the space that begins a text.
    Text that ends in an incomplete character waits for the rest of it.
    """

    def __init__(
        self,
        decode: Decode,
        hidden: Container[int] = (),
        context: Sequence[int] = (),
        pending: Sequence[int] = (),
    ) -> None:
        """`hidden` IDs have no text. `context` comes before the text. `pending` IDs begin it."""
        self._decode = decode
        self._hidden = hidden
        self._ids = [*context, *pending]
        self._num_read = len(context)
        self._latest = 0  # where the IDs of the latest text begin, and a character
        self._text = certain_text(decode, self._ids, len(context))  # what was returned of the IDs
        self._num_waiting = len(pending)  # IDs since a character was finished

    def add(self, token_id: int) -> str:
        """Return the text that became certain with `token_id`; may be empty."""
        if token_id in self._hidden:
            return self.flush()
        self._ids.append(token_id)
        self._num_waiting += 1
        text = self._decode(self._ids)
        if text.endswith(_INCOMPLETE) and self._num_waiting < _MAX_WAITING:
            return self._advance(_without_incomplete(text, self._text))
        return self._read(text)

    def flush(self) -> str:
        """Return the text that waits, an incomplete character as the decoder shows it."""
        if self._num_read == len(self._ids):
            return ""
        return self._read(self._decode(self._ids))

    def _advance(self, text: str) -> str:
        new = text[len(self._text) :]
        if new:
            self._text, self._num_waiting = text, 0
        return new

    def _read(self, text: str) -> str:
        """Return what is new in the text of all IDs, which are then part of the window."""
        if not text.startswith(self._text):
            # Bytes that became no character spoil the decoding of those before them.
            del self._ids[: self._num_read]
            self._num_read, self._text, text = 0, "", self._decode(self._ids)
        new = self._advance(text)
        if new:
            self._latest = self._num_read
        elif text or self._num_read >= _MAX_WINDOW:
            del self._ids[self._num_read :]  # nothing depends on IDs without text
        self._num_read = len(self._ids)
        if self._num_read > _MAX_WINDOW and self._latest:
            del self._ids[: self._latest]
            self._num_read, self._latest, self._text = len(self._ids), 0, self._decode(self._ids)
        return new


class DecodingModel(Protocol):
    """The part of TextModel that decoding an answer needs."""

    @property
    def hidden_tokens(self) -> Container[int]: ...

    @property
    def token_bytes(self) -> Callable[[int], bytes]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def decode_all(self, ids: Sequence[int]) -> str: ...


def answer_detokenizer(
    text: DecodingModel, prompt_token_ids: Sequence[int], hidden: Container[int] | None = None
) -> IncrementalDetokenizer:
    """Return a detokenizer for the IDs that continue a prompt. `hidden` are the special tokens that
    have no text, by default all of them."""
    decode = text.decode if hidden is None else text.decode_all
    hidden = text.hidden_tokens if hidden is None else hidden
    end = len(prompt_token_ids) - num_unfinished(prompt_token_ids, text.token_bytes)
    latest_first = (i for i in reversed(prompt_token_ids[:end]) if i not in hidden)
    context = list(islice(latest_first, _NUM_CONTEXT))[::-1]
    continues = [text.token_bytes(token_id)[:1] in _CONTINUING for token_id in context]
    start = continues.index(False) if False in continues else 0
    return IncrementalDetokenizer(decode, hidden, context[start:], pending=prompt_token_ids[end:])


def answer_text(
    text: DecodingModel, prompt_token_ids: Sequence[int], token_ids: Sequence[int]
) -> str:
    """Return the whole text of an answer, as a service shows it."""
    detokenizer = answer_detokenizer(text, prompt_token_ids)
    return "".join(map(detokenizer.add, token_ids)) + detokenizer.flush()


def certain_text(decode: Decode, token_ids: Sequence[int], num_whole: int) -> str:
    """Return the text of all IDs, without an incomplete character after the first `num_whole`."""
    text = decode(token_ids[:num_whole]) if num_whole else ""
    if num_whole == len(token_ids):
        return text
    return _without_incomplete(decode(token_ids), text)


def num_unfinished(token_ids: Sequence[int], token_bytes: Callable[[int], bytes]) -> int:
    """Return how many IDs follow the last one that ends with a whole character."""
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    last, num_whole = token_ids[-_MAX_UNFINISHED:], 0
    for count, token_id in enumerate(last, start=1):
        decoder.decode(token_bytes(token_id))
        if not decoder.getstate()[0]:
            num_whole = count
    return len(last) - num_whole


def _without_incomplete(text: str, shown: str) -> str:
    """Return `text` up to an incomplete character, but at least the text that is `shown`."""
    certain = text.rstrip(_INCOMPLETE)
    return certain if certain.startswith(shown) else shown
