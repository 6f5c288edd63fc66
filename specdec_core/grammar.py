"""Structured output: the grammar of a request's output, and the interface that lists allowed next
IDs.

The core uses no grammar library. The caller passes a compiler when it builds an engine or a
replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class GrammarKind(StrEnum):
    """Notation of a grammar."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar as text. It is sent to replicas and compiled where tokens are sampled."""

    kind: GrammarKind
    source: str
    param: str = field(default="", compare=False)
    """The caller's field that it comes from, for error messages."""


class Grammar(Protocol):
    """A compiled grammar over one tokenizer, for one sequence."""

    def prepare(self, output: Sequence[int], timeout_s: float = 0.0) -> bool:
        """Return True if `allowed(output)` has its answer, after waiting at most `timeout_s`.

        While it is False, the work continues in another thread. Ask again later.
        """
        ...

    def allowed(self, output: Sequence[int]) -> bytes | None:
        """Return which token IDs may follow the emitted IDs `output`: a byte for each, 0 if it may
        not follow.

        IDs beyond the last byte may not follow. End IDs may follow if the output may end. None if
        `output` does not conform; no token of it is ever kept. No ID may follow once the grammar
        has failed, or while it is not prepared.

        Apart from `prepare`, the answer depends on `output` alone, not on earlier calls.
        """
        ...

    @property
    def failure(self) -> str | None:
        """The reason why no ID may follow, such as a limit that the grammar exceeds; else None."""
        ...


GrammarCompiler = Callable[[GrammarSpec], Grammar]
"""Returns immediately. Raises InvalidRequestError for a grammar that it can refuse by then."""
