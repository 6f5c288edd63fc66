"""The local drafters by name, and the draft method that a request gets.

A new drafter is a class in a file of its own and one line in DRAFTERS, under its `name`. The name
is then a value of `spec_method`: in the configuration, in a request and on every command line.
SpecMethod does not list it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from specdec_core.config import DRAFT_MODEL_METHODS, SpecMethod, SpeculationConfig
from specdec_core.errors import InvalidRequestError
from specdec_core.request import Request
from specdec_core.speculation.drafter import Drafter, Offer, Row
from specdec_core.speculation.ngram import NgramDrafter

DRAFTERS: dict[str, Callable[[SpeculationConfig], Drafter]] = {
    SpecMethod.NGRAM: NgramDrafter,
}
"""Name -> function that makes the drafter for one scheduler or engine."""


def spec_methods(*, has_draft_model: bool = True) -> tuple[str, ...]:
    """Return the values of `spec_method` that can be used with or without a draft model."""
    names = (SpecMethod.DRAFT_MODEL, *DRAFTERS, SpecMethod.HYBRID, SpecMethod.NONE)
    return tuple(str(name) for name in names if has_draft_model or name not in DRAFT_MODEL_METHODS)


def drafting_methods() -> tuple[str, ...]:
    """Return the values of `spec_method` that draft."""
    return tuple(name for name in spec_methods() if name != SpecMethod.NONE)


def check_method(name: str | None) -> None:
    """Raise InvalidRequestError, a ValueError, unless `name` is a known method or None."""
    if name is not None and name not in spec_methods():
        raise _unknown_method(name)


def _unknown_method(name: str) -> InvalidRequestError:
    names = ", ".join(spec_methods())
    return InvalidRequestError(
        f"spec_method must be one of {names}, got {name[:40]!r}", param="speculative.method"
    )


def draft_method(config: SpeculationConfig, request: Request) -> str:
    """Return the request's method, else the configuration's, or NONE if either forbids drafting."""
    if config.method == SpecMethod.NONE or not request.speculation_enabled:
        return SpecMethod.NONE
    return request.spec_method or config.method or SpecMethod.NGRAM


def draft_limit(config: SpeculationConfig, request: Request) -> int:
    """Return the maximum number of drafted tokens in any round; 0 decodes without speculation."""
    if draft_method(config, request) == SpecMethod.NONE:
        return 0
    asked = request.num_draft_tokens
    return config.num_draft_tokens if asked is None else min(config.num_draft_tokens, asked)


class DraftableRow(Row, Protocol):
    """A Row that its owner lets begin."""

    drafter: Drafter | None
    """Local drafter that has begun with it."""
    draft_state: object


def offers_of(
    drafter: Drafter, rows: Sequence[DraftableRow], most: Sequence[int]
) -> Sequence[Offer]:
    """Return what the drafter offers, at most `most[i]` tokens; let new rows begin first."""
    for row in rows:
        if row.drafter is None:
            row.drafter, row.draft_state = drafter, drafter.begin(row)
    return drafter.propose(rows, most)


class LocalDrafters:
    """The drafters of one scheduler or engine. Each is made when a request first needs it.

    Prompt lookup serves the methods of draft models: before the model, or in its place.
    """

    def __init__(self, config: SpeculationConfig) -> None:
        """Raise InvalidRequestError if the configuration names an unknown method."""
        check_method(config.method)
        self._config = config
        self._made: dict[str, Drafter] = {}
        self.learn = False
        """Whether any of them learns from passes."""

    def of(self, method: str) -> Drafter | None:
        """Return the local drafter of a method; None if it has none."""
        if method == SpecMethod.NONE:
            return None
        name = str(SpecMethod.NGRAM if method in DRAFT_MODEL_METHODS else method)
        return self._made.get(name) or self._make(name)

    def _make(self, name: str) -> Drafter:
        self._made[name] = drafter = DRAFTERS[name](self._config)
        self.learn |= drafter.learns
        return drafter
