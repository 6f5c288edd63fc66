"""The grammar library llguidance: what it reads, the limits it runs under, what its errors mean.

Why this library: docs/decisions/0006-structured-output.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any

from deployments.extras import install_command
from deployments.text.grammar_limits import DEFAULT_LIMITS, GrammarLimits
from deployments.text.grammar_source import library_text
from deployments.text.lark_source import over_bytes
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec

if TYPE_CHECKING:
    from deployments.text.tokenizer import TextModel

_STEP_FUEL = 100_000
"""Maximum cost of one mask in a matcher that sequences share."""
_STEP_ITEMS = 50_000
"""As `_STEP_FUEL`, in parser items."""
_FULL_OVER_SHARED = 8
"""The full limits, as a multiple of those of a shared matcher."""


def library_limits(limits: GrammarLimits, *, has_full_limits: bool) -> Any:
    """Return the library's own limits. Both kinds of matchers compile alike.

    A matcher with the full limits has an answer wherever a shared one has. All sequences of a
    shared one together have at most an eighth of the states.
    """
    more = _FULL_OVER_SHARED if has_full_limits else 1
    return library().LLParserLimits(
        max_lexer_states=max(limits.max_states * more // _FULL_OVER_SHARED, 1),
        step_lexer_fuel=_STEP_FUEL * more,
        step_max_items=_STEP_ITEMS * more,
    )


class MatcherFactory:
    """Makes matchers over one tokenizer, which is read when the first grammar comes."""

    def __init__(self, load: Callable[[], Any], limits: GrammarLimits) -> None:
        self.limits = limits
        self._load = load
        self._tokenizer: Any = None
        self._lock = Lock()

    def read_tokenizer(self) -> Any:
        """Return the tokenizer, which is read once."""
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = self._load()
        return self._tokenizer

    def make(self, spec: GrammarSpec, *, has_full_limits: bool) -> Any:
        """Return a matcher at the start. Raises InvalidRequestError for an unreadable grammar."""
        self.limits.check_size(spec)
        limits = library_limits(self.limits, has_full_limits=has_full_limits)
        matcher = library().LLMatcher(
            self.read_tokenizer(),
            library_text(library().LLMatcher, spec),
            log_level=0,
            limits=limits,
        )
        if matcher.is_error():
            raise self.limits.refusal(matcher.get_error(), spec)
        return matcher


def try_grammar(spec: GrammarSpec, limits: GrammarLimits = DEFAULT_LIMITS) -> None:
    """Compile a grammar over bytes, and raise InvalidRequestError if that fails.

    It takes as long as the grammar costs, and may end the process if the grammar nests too deeply.
    The model's special tokens are not known here, so their names and IDs are not checked.
    """
    if spec.kind is GrammarKind.LARK:
        limits.check_size(spec)
        spec = replace(spec, source=over_bytes(spec.source))
    matcher = MatcherFactory(lambda: library().LLTokenizer("byte"), limits).make(
        spec, has_full_limits=False
    )
    matcher.compute_logit_bias()
    if matcher.is_error():
        raise limits.refusal(matcher.get_error(), spec)


def tokenizer_of(text: TextModel) -> Any:
    """Return the library's own tokenizer. Raises InvalidRequestError for a model without an end."""
    check_end(text.end_token_ids)
    settings = {"n_vocab": text.vocab_size, "eos_token": sorted(text.end_token_ids)}
    read = library().LLTokenizer(text.backend.to_str(), **settings)
    spelling = _Spelling(read, text)
    return library().LLTokenizer(library().TokenizerWrapper(spelling), **settings)


def check_end(end_token_ids: Collection[int]) -> None:
    """Raise InvalidRequestError if a model has no token that ends an answer."""
    if not end_token_ids:
        raise InvalidRequestError(
            "structured output needs a model with an end-of-sequence token: this one has none. Set "
            "eos_token_id in its generation_config.json"
        )


class _Spelling:
    """Tokens of a model as the library takes them, and their IDs for a text.

    The library reads text of a grammar that can only continue in one way as tokens. It would read
    `<think>` as the special token, which it then refuses, and the answer would be constrained no
    more. So no text becomes a special token here.
    """

    bos_token_id = None

    def __init__(self, read: Any, text: TextModel) -> None:
        """`read` is the tokenizer that the library reads from a file."""
        self.eos_token_id = min(text.end_token_ids)
        self.tokens = [read.decode_bytes([i]) for i in range(read.vocab_size)]
        self.special_token_ids = [i for i in range(read.vocab_size) if read.is_special_token(i)]
        self._tokenize = read.tokenize_str
        special = {self.tokens[i].decode(errors="replace") for i in self.special_token_ids}
        longest_first = sorted(filter(None, special), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def __call__(self, text: str) -> list[int]:
        """Return the IDs of a text. A special token's text is cut after its first character."""
        cuts = [match.start() + 1 for match in self._special.finditer(text)]
        ids: list[int] = []
        for start, end in pairwise([0, *cuts, len(text)]):
            ids += self._tokenize(text[start:end])
        return ids


def library() -> Any:
    """Return the module. Raises InvalidRequestError if it is not installed."""
    try:
        import llguidance
    except ImportError:
        raise InvalidRequestError(
            f"structured output needs llguidance: {install_command('grammar')}"
        ) from None
    return llguidance
