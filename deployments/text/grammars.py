"""Grammars over a tokenizer, by llguidance (the `grammar` extra).

Why this one: docs/decisions/0006-structured-output.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from deployments.extras import install_command
from deployments.text.grammar_source import library_text, refusal
from deployments.text.model import TextModel
from deployments.text.structured_output import MAX_GRAMMAR_CHARS
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec

_NUM_CACHED = 64
"""Grammars that a replica keeps compiled, and that an ingress knows to be fine."""


@lru_cache(_NUM_CACHED)
def check_grammar(spec: GrammarSpec) -> None:
    """Raises InvalidRequestError for a grammar that cannot be read, or where no library is.

    One that was fine is not read again: the prompts of a request share it, and so do requests.
    """
    if len(spec.source) > MAX_GRAMMAR_CHARS:
        raise InvalidRequestError(
            f"the grammar has {len(spec.source)} characters, the limit is {MAX_GRAMMAR_CHARS}"
        )
    matcher = _library().LLMatcher
    error = matcher.validate_grammar(library_text(matcher, spec))
    if error and not error.startswith("WARNING"):
        raise refusal(error, spec)


class Compiler:
    """A GrammarCompiler for one tokenizer, which is read when the first grammar comes."""

    def __init__(self, load_text: Callable[[], TextModel]) -> None:
        self._load_text = load_text
        self._tokenizer: Any = None
        self._matcher_of = lru_cache(_NUM_CACHED)(self._compile)

    def __call__(self, spec: GrammarSpec) -> CompiledGrammar:
        matcher = self._matcher_of(spec).deep_copy()
        return CompiledGrammar(matcher, self._tokenizer.vocab_size)

    def _compile(self, spec: GrammarSpec) -> Any:
        library = _library()
        if self._tokenizer is None:
            text = self._load_text()
            ends = sorted(text.end_token_ids)
            self._tokenizer = library.LLTokenizer(
                text.backend.to_str(), n_vocab=text.vocab_size, eos_token=ends
            )
        matcher = library.LLMatcher(
            self._tokenizer, library_text(library.LLMatcher, spec), log_level=0
        )
        if matcher.is_error():
            raise refusal(matcher.get_error(), spec)
        return matcher


class CompiledGrammar:
    """A Grammar: one matcher, moved to wherever it is asked about."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._consumed: list[int] = []

    @property
    def failure(self) -> str | None:
        if not self._matcher.is_error():
            return None
        first_line, _, _ = self._matcher.get_error().partition("\n")
        return f"structured output: {first_line:.200}"

    def allowed(self, output: Sequence[int]) -> bytes | None:
        conforms = self._move_to(list(output))
        weights = self._matcher.compute_logit_bias() if conforms else b""
        if self._matcher.is_error():
            return bytes(self._vocab_size)
        return weights if conforms else None

    def _move_to(self, output: list[int]) -> bool:
        if self._matcher.is_error():
            return False
        common = _common_length(self._consumed, output)
        if common < len(self._consumed):
            assert self._matcher.rollback(len(self._consumed) - common), self._matcher.get_error()
            del self._consumed[common:]
        rest = output[common:]
        count = self._matcher.try_consume_tokens(rest) if rest else 0
        self._consumed += rest[:count]
        return count == len(rest)


def _common_length(first: list[int], second: list[int]) -> int:
    if second[: len(first)] == first:
        return len(first)
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _library() -> Any:
    try:
        import llguidance
    except ImportError:
        raise InvalidRequestError(
            f"structured output needs llguidance: {install_command('grammar')}"
        ) from None
    return llguidance
