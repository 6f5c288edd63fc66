"""Structured output: what a request's tokens must spell, and who tells which ids may come next.

The core knows no grammar library: whoever builds an engine or a replica passes a compiler in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class GrammarKind(StrEnum):
    """How a grammar is written down."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar as text: it travels, and is compiled where tokens are chosen."""

    kind: GrammarKind
    source: str
    param: str = field(default="", compare=False)
    """The caller's field that it comes from, for error messages."""


class Grammar(Protocol):
    """A compiled grammar over one tokenizer, for one sequence."""

    def prepare(self, output: Sequence[int], timeout_s: float = 0.0) -> bool:
        """Return whether `allowed(output)` has its answer, after waiting at most `timeout_s`.

        While it is False, the work continues in another thread: ask again later.
        """
        ...

    def allowed(self, output: Sequence[int]) -> bytes | None:
        """Return which token IDs may follow the emitted IDs `output`: a byte for each, 0 or
        none for those that may not. End IDs may follow if the output may end. None if `output` does
        not conform: nothing of it is ever kept. No ID may follow once the grammar has failed, or
        while it is not prepared.

        Apart from `prepare`, the answer is a function of `output` alone, whatever was asked before.
        """
        ...

    @property
    def failure(self) -> str | None:
        """The reason why no ID may follow, such as a limit that the grammar exceeds; else None."""
        ...


GrammarCompiler = Callable[[GrammarSpec], Grammar]
"""Returns at once; raises InvalidRequestError for a grammar that it can refuse by then."""
