"""Sampling rules of a sequence, apart from its IDs. Sent once to every replica that it visits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import Grammar, GrammarCompiler
from specdec_core.sampling_params import SAMPLING_FIELDS, Effect, SamplingParams

_LOGIT_DEFAULTS = {
    one.name: one.default for one in SAMPLING_FIELDS if one.effect is not Effect.NONE
}
_HISTORY_FIELDS = {one.name for one in SAMPLING_FIELDS if one.effect is Effect.HISTORY}


@dataclass(frozen=True)
class SamplingRules:
    """One request's rules. With the IDs before a position they determine the token there."""

    params: SamplingParams
    prompt_len: int
    """Number of prompt IDs. All later IDs count as output, whichever attempt of the request emitted
    them."""
    stop_ids: frozenset[int] = frozenset()
    """Every ID that ends the request. min_tokens bans these."""
    cache_salt: str = ""
    """Only sequences with an equal salt share cached blocks. No choice depends on it."""
    grammar: Grammar | None = field(default=None, compare=False)
    """Compiled grammar of the parameters. It is never sent."""

    # Both are cached, because each row reads them several times.
    @cached_property
    def logit_fields(self) -> frozenset[str]:
        """Names of the parameters that change logits, because they differ from their defaults."""
        return frozenset(
            name
            for name, default in _LOGIT_DEFAULTS.items()
            if getattr(self.params, name) != default
        )

    @cached_property
    def needs_history(self) -> bool:
        """True if a choice depends on the IDs before it."""
        return not self.logit_fields.isdisjoint(_HISTORY_FIELDS)

    @property
    def failure(self) -> str | None:
        """The reason why these rules allow no further token, or None."""
        return None if self.grammar is None else self.grammar.failure

    def compiled(self, compiler: GrammarCompiler | None) -> SamplingRules:
        """Return the rules with a compiled grammar. Raises InvalidRequestError if there is no
        compiler, or if it cannot read the grammar."""
        if self.params.grammar is None:
            return self
        if compiler is None:
            raise InvalidRequestError("structured output is not supported here")
        return replace(self, grammar=compiler(self.params.grammar))


class SampleRow(NamedTuple):
    """Rules and position of the token that is sampled from a row of logits."""

    rules: SamplingRules
    position: int
    """Absolute place of the token in its sequence, prompt included."""
    history: Sequence[int] = ()
    """IDs of the sequence from its start; those before `position` count. It may be longer, so that
    the rows of a proposal share one. It may be empty for rules that need none."""
