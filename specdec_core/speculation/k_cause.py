"""Why a round checks as many drafted tokens as it does: what decided its K last."""

from __future__ import annotations

from enum import IntEnum


class DraftLengthReason(IntEnum):
    """Counted once per round that commits; a number, so that a list can count it."""

    OFF = 0
    """The configuration drafts nothing."""
    REQUEST = 1
    """The request switches drafting off."""
    ENDING = 2
    """One token is left of the request's budget."""
    NOTHING_FOUND = 3
    """Prompt lookup had nothing to offer."""
    NO_DRAFT = 4
    """The target did not wait for the draft model: the first token, or no draft replica holds the
    sequence, or it has much to catch up with. Prompt lookup may have stood in."""
    QUEUE = 5
    """Draft replicas have no time for all rounds, so this one went without a proposal."""
    CONFIGURED = 6
    """A fixed K, or that of the schedule."""
    GOODPUT = 7
    """The controller: it promises most tokens per second."""
    PROBE = 8
    """The controller, to learn: what a pass costs, or how good a draft model is."""
    BUDGET = 9
    """The verification budget left some tokens out."""
    ROOM = 10
    """A replica has no KV blocks for more."""
    RESUME = 11
    """Nobody drafted: the round checked tokens that the client had brought back."""

    @property
    def label(self) -> str:
        """As people and metrics read it."""
        return self.name.lower()
