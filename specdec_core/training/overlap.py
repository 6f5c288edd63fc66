"""Filter of the training text: a text that shares a run of words with an excluded one is
dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

DEFAULT_RUN = 13
_WORD = re.compile(r"\w+")


class OverlapFilter:
    """Finds runs of `run` words. A shorter excluded text is searched for as a whole."""

    def __init__(self, excluded: Iterable[str], run: int = DEFAULT_RUN) -> None:
        self._runs: dict[int, set[tuple[str, ...]]] = {}
        for text in excluded:
            words = _words(text)
            length = min(run, len(words))
            if length:
                self._runs.setdefault(length, set()).update(_runs_of(words, length))

    def overlaps(self, text: str) -> bool:
        """Return whether `text` has a run of words in common with an excluded one."""
        words = _words(text)
        return any(
            candidate in runs
            for length, runs in self._runs.items()
            for candidate in _runs_of(words, length)
        )


def _words(text: str) -> list[str]:
    """Return lower-case words. Texts that differ in punctuation, case or spacing are the same."""
    return _WORD.findall(text.lower())


def _runs_of(words: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[i : i + length]) for i in range(len(words) - length + 1))
