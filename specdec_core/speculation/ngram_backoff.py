"""When prompt lookup is left out: where what it finds is not worth a row, longer each time.

To look tokens up and to choose among them takes a fiftieth of a round of 8 sequences, and their
target waits for it. A batch whose answers repeat nothing looks in vain in every pass. So it looks
seldom; and what was found and not checked is compared all the same, for one that begins to repeat
itself is to be found out soon.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

FEW = 4
"""Sequences for which prompt lookup never rests: it takes next to nothing of their rounds."""
_IN_VAIN = 8
"""Groups in a row with found tokens, of which none was worth a row, before the first rest."""
_FIRST_REST = 4
"""Target passes without prompt lookup then, of groups no smaller. One with it follows; if that was
in vain too, the next rest is twice as long."""
_LONGEST_REST = 32


@dataclass(eq=False, slots=True)
class NgramBackoff:
    """Of the groups of a pool. Counts target passes, reads no clock."""

    num_left: int = 0
    """Passes that it still rests."""
    _next_rest: int = _FIRST_REST
    """Passes of the rest after it."""
    _num_in_vain: int = 0
    """Of the last groups with found tokens, those of which none was checked."""
    _size_in_vain: int = 0
    """Sequences of the last of them."""
    _num_found: int = 0
    """First tokens of what was found before it rests."""
    _surprise: float = 0.0
    """How many more of them were right than foretold."""

    def allows(self, size: int) -> bool:
        """Whether prompt lookup is worth its time for a group of so many sequences."""
        return not self.num_left or size < self._size_in_vain

    def note_choice(self, size: int, num_kept: int) -> None:
        """A group with found tokens was chosen for; `num_kept` of them are checked."""
        if num_kept:
            self._end()
        elif size > FEW:
            self._num_in_vain += 1
            self._size_in_vain = size
            if self._num_in_vain >= _IN_VAIN:
                self.num_left = self._next_rest + 1  # the pass that is chosen counts
                self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
                self._num_found, self._surprise = 0, 0.0

    def note_found(self, is_right: bool, foretold: float) -> None:
        """What came of the first token that a sequence was offered, and the chance that it had."""
        self._num_found += 1
        self._surprise += is_right - foretold

    def note_pass(self) -> None:
        """A target pass has ended."""
        self.num_left = max(self.num_left - 1, 0)
        if self._surprise > 1.0 + sqrt(self._num_found):
            self._end()

    def _end(self) -> None:
        """What is found may be worth a row."""
        self._num_in_vain, self.num_left = 0, 0
        self._next_rest, self._surprise = _FIRST_REST, 0.0
