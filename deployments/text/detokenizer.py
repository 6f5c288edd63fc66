"""Text of token IDs as they arrive: characters are never split, stop strings never leak."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Container, Sequence
from itertools import islice
from typing import Protocol

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
        """`hidden` IDs have no text. `context` comes before the text, and `pending` IDs begin its
        first character."""
        self._decode = decode
        self._hidden = hidden
        self._ids = [*context, *pending]
        self._num_read = len(context)
        self._latest = 0
        """Where the IDs of the latest text begin. A character begins there too."""
        self._text = certain_text(decode, self._ids, len(context))
        """Text of the IDs that was returned."""
        self._num_waiting = len(pending)
        """IDs since a character was finished."""

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
    """Return a detokenizer for the IDs that continue a prompt.

    The prompt's text and the answer's text together are the text of all IDs. `hidden` are the
    special tokens that have no text, by default all of them.
    """
    decode = text.decode if hidden is None else text.decode_all
    hidden = text.hidden_tokens if hidden is None else hidden
    end = len(prompt_token_ids) - num_unfinished(prompt_token_ids, text.token_bytes)
    backwards = (prompt_token_ids[place] for place in range(end - 1, -1, -1))
    seen = [i for i in islice((i for i in backwards if i not in hidden), _NUM_CONTEXT)][::-1]
    starts = (place for place, i in enumerate(seen) if not _continues(text.token_bytes(i)))
    return IncrementalDetokenizer(
        decode,
        hidden,
        context=seen[next(starts, 0) :],
        pending=prompt_token_ids[end:],
    )


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


def _without_incomplete(text: str, known: str) -> str:
    """Return `text` up to an incomplete character, but at least the text that is `known`."""
    certain = text.rstrip(_INCOMPLETE)
    return certain if certain.startswith(known) else known


def _continues(content: bytes) -> bool:
    """Whether these bytes begin within a UTF-8 character."""
    return bool(content) and content[0] & 0xC0 == 0x80
