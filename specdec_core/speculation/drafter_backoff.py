"""Back-off of a local drafter: skip it if its offers are not worth a row, longer each time.

Prompt lookup and the choice among its tokens take a fiftieth of a round of 8 sequences, and the
target waits for them. If the answers of a batch repeat nothing, the lookup of every pass finds
nothing useful. So lookups become rare. Offered tokens that were not checked are still compared.
This soon detects a batch that begins to repeat itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

FEW = 4
"""Number of sequences for which no local drafter rests. Prompt lookup takes next to nothing of
their rounds."""
_MISSES = 8
"""Consecutive groups with offered tokens, of which none was worth a row, before the first rest."""
_FIRST_REST = 4
"""Target passes of the first rest, for groups no smaller. One pass with the drafter follows. If
that was a miss too, the next rest is twice as long."""
_LONGEST_REST = 32


@dataclass(eq=False, slots=True)
class DrafterBackoff:
    """Back-off of one drafter for a scheduler's groups. Counts target passes, reads no clock."""

    num_left: int = 0
    """Passes left of the present rest."""
    _next_rest: int = _FIRST_REST
    """Passes of the next rest."""
    _num_misses: int = 0
    """Number of last consecutive groups with offered tokens of which none was checked."""
    _missed_size: int = 0
    """Number of sequences of the last of these groups."""
    _num_offers: int = 0
    """Number of proposals from before the rest whose first token was compared during it."""
    _surprise: float = 0.0
    """Number of these first tokens that were right, less the number predicted."""

    def allows(self, size: int) -> bool:
        """Return whether the drafter is worth its time for a group of `size` sequences."""
        return not self.num_left or size < self._missed_size

    def note_choice(self, size: int, num_kept: int) -> None:
        """Note the choice for a group with offered tokens, of which `num_kept` are checked."""
        if num_kept:
            self._end()
        elif size > FEW:
            self._num_misses += 1
            self._missed_size = size
            if self._num_misses >= _MISSES:
                self.num_left = self._next_rest + 1  # the pass that is chosen counts
                self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
                self._num_offers, self._surprise = 0, 0.0

    def note_offer(self, is_right: bool, predicted: float) -> None:
        """Note whether the first token offered to a sequence was right, and its predicted
        chance."""
        self._num_offers += 1
        self._surprise += is_right - predicted

    def note_pass(self) -> None:
        """Note the end of a target pass."""
        self.num_left = max(self.num_left - 1, 0)
        if self._surprise > 1.0 + sqrt(self._num_offers):
            self._end()

    def _end(self) -> None:
        """End the rest, because offered tokens may be worth a row."""
        self._num_misses, self.num_left = 0, 0
        self._next_rest, self._surprise = _FIRST_REST, 0.0
