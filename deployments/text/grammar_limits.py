"""Limits of what one structured-output grammar may cost, and the errors that name them."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec

_OUT_OF_STATES = ("lexer error", "too many states", "too many expressions", "too many items")
"""Words of the library's messages about limits of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarLimits:
    """The operator's limits for one grammar, wherever it is read or computed."""

    max_chars: int = 200_000
    """Characters of its text."""
    max_seconds: float = 1.0
    """CPU time for reading it, before its request is queued."""
    max_states: int = 250_000
    """Lexer states that one answer may need."""

    def check_size(self, spec: GrammarSpec) -> None:
        """Raise InvalidRequestError for a grammar with too many characters."""
        if len(spec.source) > self.max_chars:
            raise InvalidRequestError(
                f"the grammar has {len(spec.source)} characters, the limit is "
                f"max_grammar_chars={self.max_chars}",
                param=spec.param,
            )

    def refusal(self, message: str, spec: GrammarSpec) -> InvalidRequestError:
        """Return the error for the library's `message`; it names the limit, if that is exceeded."""
        first_line, _, _ = message.partition("\n")
        if not any(word in first_line.lower() for word in _OUT_OF_STATES):
            from deployments.text.grammar_source import refusal

            return refusal(message, spec)
        return InvalidRequestError(
            "structured output: the grammar is too complex: this answer needs more than "
            f"max_grammar_states={self.max_states} ({first_line:.150})",
            param=spec.param,
        )


DEFAULT_LIMITS = GrammarLimits()
