"""Shapes in which attention is called."""

from __future__ import annotations

import sys
from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple


class SizeRange(NamedTuple):
    """Sizes, both ends included, whose results have equal bits."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The shapes in which attention is called."""

    queries: SizeRange
    """Queries of a row. Fewer are padded; more become several rows."""
    key_lens: tuple[int, ...]
    """Key lengths that are read, ascending. A longer one is a multiple of the last one plus one of
    these."""

    def key_len(self, num_keys: int) -> int:
        """Return the number of keys that are read if a row needs `num_keys`, at least 1."""
        num_whole = (num_keys - 1) // self.key_lens[-1] * self.key_lens[-1]
        return num_whole + self.key_lens[bisect_left(self.key_lens, num_keys - num_whole)]

    def __str__(self) -> str:
        if self.queries.high == sys.maxsize and self.key_lens == (1,):
            return "attention of any shape"
        return f"attention {self.queries} queries, keys by {'/'.join(map(str, self.key_lens))}"


FAST_ATTENTION = AttentionShape(queries=SizeRange(1, sys.maxsize), key_lens=(64,))
"""Shape in fast numerics. Lengths are rounded here too, because few lengths mean few shapes for the
kernels to prepare."""


ANY_ATTENTION = AttentionShape(queries=SizeRange(1, sys.maxsize), key_lens=(1,))
"""Shape for kernels whose results do not depend on the shape."""
