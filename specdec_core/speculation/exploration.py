"""Choose a size whose passes are run to learn their price, though another size promises more.

A size is explored ("looked at") if it would be the best at a price that is likely enough. A look
costs the time by which this size is expected to exceed the best. Passes earn a small share of their
time for looks. So all looks together take no more than that share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec_core.speculation.token_selection import CandidateSize

_FIRST = 1.0
"""Time for looks at the start, in passes."""
_SHARE = 0.01
"""Share of a pass that each pass adds to the time for looks."""
_MOST = 2.0
"""Maximum time that is kept for looks, in passes."""
_LEAST = 0.1
"""Minimum price of a look, in passes. It limits looks at sizes that are nearly as good as the
best."""
_GAIN = 0.02
"""Relative gain over the best that a size must promise at a likely price."""


@dataclass(eq=False, slots=True)
class Exploration:
    """Exploration of sizes, within the time that passes have earned for looks."""

    credit: float = _FIRST
    """Passes that looks may still take."""

    def chosen(self, found: Sequence[CandidateSize], best: CandidateSize) -> CandidateSize:
        """Return the size to look at, which may gain most for its price, or else `best`."""
        self.credit = min(self.credit + _SHARE, _MOST)
        known = (1.0 + _GAIN) * max(best.tokens_per_second, best.hope)
        hopeful = [one for one in found if one.hope > known and _price(one, best) <= self.credit]
        if not hopeful:
            return best
        looked_at = max(hopeful, key=lambda one: (one.hope - known) / _price(one, best))
        self.credit -= _price(looked_at, best)
        return looked_at


def _price(one: CandidateSize, best: CandidateSize) -> float:
    """Return the passes of the best size that make the tokens which a look is expected to lose."""
    share = 1.0 - one.tokens_per_second / best.tokens_per_second
    return max(share * one.seconds / best.seconds, _LEAST)
