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

    def allowed(self, output: Sequence[int]) -> bytes | None:
        """Which ids may follow the emitted ids `output`: a byte for each, 0 for those that may not;
        end ids may where the output may end. None behind an output that does not conform: nothing
        of it is ever kept. No id at all once the grammar has failed.

        A function of `output` alone, whatever was asked before.
        """
        ...

    @property
    def failure(self) -> str | None:
        """Why it cannot go on (it is too complex, say); None while it can."""
        ...


GrammarCompiler = Callable[[GrammarSpec], Grammar]
"""Raises InvalidRequestError for a grammar that it cannot read."""
