"""Seeds and their hash. Integers only, so that callers that set a seed need no torch."""

from __future__ import annotations

_MASK64 = (1 << 64) - 1
_GOLDEN64 = 0x9E3779B97F4A7C15


def mix64(seed: int, counter: int) -> int:
    """Return an unsigned 64-bit hash of two non-negative integers; splitmix64's finaliser,
    twice."""
    return _finalise64(_finalise64(seed + _GOLDEN64) + _GOLDEN64 * (counter + 1))


def derive_seed(seed: int, choice: int) -> int:
    """Return the seed of choice j of n; choice 0 keeps the request's own. Below 2^63, as every
    seed."""
    return seed if choice == 0 else mix64(seed, choice) >> 1


def _finalise64(x: int) -> int:
    x &= _MASK64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK64
    return x ^ (x >> 31)
