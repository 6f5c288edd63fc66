"""Ids to text while they come: characters are never split, stop strings never leak."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_INCOMPLETE = "\ufffd"
"""What a decoder writes for bytes that are not a whole character yet."""

Decode = Callable[[Sequence[int]], str]


class IncrementalDetokenizer:
    """Text of a growing list of ids.

    Decoding a window before and after an id shows what the id added, spaces that depend on their
    neighbours included. Text that ends in an incomplete character waits for the rest of it.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._window_start = 0
        self._read_end = 0

    def add(self, token_id: int) -> str:
        """The text that became certain with `token_id`; may be empty."""
        self._ids.append(token_id)
        before = self._decode(self._ids[self._window_start : self._read_end])
        after = self._decode(self._ids[self._window_start :])
        if len(after) <= len(before) or after.endswith(_INCOMPLETE):
            return ""
        self._window_start, self._read_end = self._read_end, len(self._ids)
        return after[len(before) :]

    def flush(self) -> str:
        """What is left at the end, an incomplete character as the decoder shows it."""
        before = self._decode(self._ids[self._window_start : self._read_end])
        after = self._decode(self._ids[self._window_start :])
        self._window_start = self._read_end = len(self._ids)
        return after[len(before) :]


class StopStrings:
    """Cuts text at the first stop string and holds back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self._num_exempt = 0
        self.found: str | None = None

    def add(self, text: str, *, is_exempt: bool = False) -> str:
        """The text that may be shown now. Nothing more once `found` is set.

        A stop string that ends in exempt text is text like any other.
        """
        if self.found is not None:
            return ""
        self._held += text
        if is_exempt:
            self._num_exempt = len(self._held)
        starts = {stop: self._held.find(stop, self._earliest(stop)) for stop in self._stops}
        hits = [(start, stop) for stop, start in starts.items() if start >= 0]
        if hits:
            start, self.found = min(hits)
            shown, self._held = self._held[:start], ""
            return shown
        num_held = self._num_suspicious()
        cut = len(self._held) - num_held
        shown, self._held = self._held[:cut], self._held[cut:]
        self._num_exempt = max(0, self._num_exempt - cut)
        return shown

    def flush(self) -> str:
        """What was held back, when no stop string came of it."""
        shown, self._held = self._held, ""
        return shown

    def _earliest(self, stop: str) -> int:
        """Where `stop` may begin, so that it ends behind what is exempt."""
        return max(0, self._num_exempt - len(stop) + 1)

    def _num_suspicious(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
