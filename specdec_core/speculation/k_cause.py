"""Reasons for the number of drafted tokens that a round checks: what decided its K last."""

from __future__ import annotations

from enum import IntEnum


class DraftLengthReason(IntEnum):
    """Reason for K, counted once per round that commits. It is a number so that a list can count
    it."""

    OFF = 0
    """The configuration drafts nothing."""
    REQUEST = 1
    """The request switches drafting off."""
    ENDING = 2
    """One token is left of the request's budget."""
    NOTHING_FOUND = 3
    """Prompt lookup had nothing to offer."""
    NO_DRAFT = 4
    """The target did not wait for the draft model. Either it is the first token, or no draft
    replica holds the sequence, or the draft has much to catch up with. Prompt lookup may have
    replaced the draft model."""
    QUEUE = 5
    """Draft replicas have no time for all rounds, so this one went without a proposal."""
    CONFIGURED = 6
    """A fixed K, or that of the schedule."""
    GOODPUT = 7
    """Chosen by the controller, because this K promises the most tokens per second."""
    PROBE = 8
    """Chosen by the controller to learn the cost of a pass or the quality of a draft model."""
    BUDGET = 9
    """The verification budget left some tokens out."""
    ROOM = 10
    """A replica has no KV blocks for more."""
    RESUME = 11
    """No drafting: the round checked tokens that the client had brought back."""

    @property
    def label(self) -> str:
        """Name of the reason for people and metrics."""
        return self.name.lower()
