"""Sets how often the coordinator's process collects garbage, because each look delays all work."""

from __future__ import annotations

import gc

_YOUNG = 20_000
"""Number of new objects at which the youngest generation is collected (Python: 700).

A group of 64 makes some thousand objects for a moment, so every decision had a collection. At
10,000, one decision in 70 had one (what prompt lookup learns grows). Each took half a millisecond,
the 99th percentile of decisions. The scheduler leaves no objects in cycles; errors and streams
leave few.
"""
_FEW_LIVE = 512
"""Live sequences with which a full collection takes a millisecond (84 with 10,000)."""


def look_seldom() -> None:
    """Make collections rare. Call this once everything is imported.

    Imported objects live as long as the process, and are never looked at again.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG)


def is_look_short(num_live: int) -> bool:
    """Return whether a full collection is short with `num_live` live sequences."""
    return num_live <= _FEW_LIVE
