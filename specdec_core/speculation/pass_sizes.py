"""Classes of sizes whose passes are treated as the same size."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def last_of_class(count: int, per_octave: int) -> int:
    """Return the largest size of the class that `count` belongs to.

    There are `per_octave` classes between a power of two and the next. A size below twice this
    number has a class of its own.
    """
    step = max(1 << (count.bit_length() - 1), per_octave) // per_octave
    return -(-count // step) * step
