"""Stop strings in a growing text, special tokens included whether they are shown or not."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Cuts text at the first stop string and holds back what may be the beginning of one.

    Hidden text, such as that of a special token, takes part in the search and is not shown.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self._hidden: list[tuple[int, int]] = []
        """Start and end of the hidden parts of the held text."""
        self._num_exempt = 0
        self.found: str | None = None

    def add(self, text: str, *, is_exempt: bool = False, is_hidden: bool = False) -> str:
        """Return the text that may be shown now. Nothing more once `found` is set.

        A stop string that ends in exempt text is text like any other.
        """
        if self.found is not None:
            return ""
        if not self._stops:
            return "" if is_hidden else text
        if is_hidden:
            self._hidden.append((len(self._held), len(self._held) + len(text)))
        self._held += text
        if is_exempt:
            self._num_exempt = len(self._held)
        starts = {stop: self._held.find(stop, self._earliest(stop)) for stop in self._stops}
        hits = [(start, stop) for stop, start in starts.items() if start >= 0]
        if hits:
            start, self.found = min(hits)
            return self._take(start)
        return self._take(len(self._held) - self._num_suspicious())

    def flush(self) -> str:
        """Return what was held back, when no stop string came of it."""
        return self._take(len(self._held)) if self.found is None else ""

    def _take(self, count: int) -> str:
        """Remove `count` characters from the held text; return those that are shown."""
        taken, shown, place = self._held[:count], "", 0
        for start, end in self._hidden:
            shown += taken[place:start]
            place = end
        shown += taken[place:]
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
