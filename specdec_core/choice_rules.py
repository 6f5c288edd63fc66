"""What a sequence's tokens are chosen by, besides its ids. Sent once to every replica it visits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import Grammar, GrammarCompiler
from specdec_core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """One request's rules. With the ids before a position they define the choice there."""

    params: SamplingParams
    prompt_len: int
    """The first so many ids are the prompt. All others count as output, whichever attempt of the
    request emitted them."""
    stop_ids: frozenset[int] = frozenset()
    """Every id that ends the request: what min_tokens bans."""
    cache_salt: str = ""
    """Sequences of other salts share nothing with it. No choice depends on it."""
    grammar: Grammar | None = field(default=None, compare=False)
    """That of the parameters, compiled; it never travels."""
    needs_history: bool = field(init=False, compare=False)
    """Whether a choice depends on which ids stand before it. Asked several times a row."""

    def __post_init__(self) -> None:
        params = self.params
        needs_history = (
            params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
            or params.repetition_penalty != 1.0
            or bool(params.bad_words)
            or params.grammar is not None
        )
        object.__setattr__(self, "needs_history", needs_history)

    @property
    def failure(self) -> str | None:
        """Why nothing can be chosen by these rules any more."""
        return None if self.grammar is None else self.grammar.failure

    def compiled(self, compiler: GrammarCompiler | None) -> SamplingRules:
        """The rules with their grammar ready. Raises InvalidRequestError where there is no
        compiler, or it cannot read the grammar."""
        if self.params.grammar is None:
            return self
        if compiler is None:
            raise InvalidRequestError("structured output is not supported here")
        return replace(self, grammar=compiler(self.params.grammar))


class SampleRow(NamedTuple):
    """Whose token a row of logits chooses, and where."""

    rules: SamplingRules
    position: int
    """Absolute place of the token in its sequence, prompt included."""
    history: Sequence[int] = ()
    """Ids of the sequence from its start; those before `position` count. It may be longer, so that
    the rows of a proposal share one, and empty for rules that need none."""
