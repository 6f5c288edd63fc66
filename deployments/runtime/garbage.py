"""How often the coordinator's process looks for cycles of garbage: each look holds up everybody."""

from __future__ import annotations

import gc

_YOUNG = 20_000
"""Objects that are more than were before, at which the youngest are looked through (Python: 700).
A group of 64 makes some thousand for a moment, so that there was a look in every decision; at
10,000 there was one in 70 (what prompt lookup learns grows) and half a millisecond each, the 99th
percentile of decisions. The pool leaves none in cycles, errors and streams few."""
_FEW_LIVE = 512
"""Sequences, with which a whole look takes a millisecond (84 with 10,000)."""


def look_seldom() -> None:
    """Call it once all is imported: that lives as long as the process and is never looked at."""
    gc.freeze()
    gc.set_threshold(_YOUNG)


def is_look_short(num_live: int) -> bool:
    """Whether a whole look, so many sequences being live, holds nobody up for long."""
    return num_live <= _FEW_LIVE
