"""Compiled grammars of a replica or an engine.

Invariant: what a grammar answers is a function of the output alone. Requests share the states that
the library builds on the way, because those are the expensive part. Where a shared matcher meets a
limit, a fresh one that has seen nothing but this output decides.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from deployments.text.grammar_library import MatcherFactory, library, tokenizer_of
from deployments.text.grammar_limits import DEFAULT_LIMITS, GrammarLimits
from deployments.text.grammar_workers import AtOnce, Workers
from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec

_NUM_CACHED = 16
"""Grammars that stay compiled."""
_NUM_MASKS = 4096
"""Masks after which new requests get a fresh matcher: each mask may add states to the shared one.
"""
_STRIDE = 64
"""Output tokens that a matcher takes before another mask renews its fuel."""
_SLOW_S = 0.01
"""Time for one answer from which a sequence's further answers are computed apart from others."""
_DRAFTED_WAIT_S = 0.004
"""Time that the caller waits for the answer to a drafted output."""
_NOTHING = b"\0"
"""The answer that no token ID may follow."""


class _LimitError(Exception):
    """A matcher has met a limit and answers no more."""


@dataclass(eq=False, slots=True)
class _SharedMatcher:
    """A matcher at the start, and the states that its copies share with it."""

    matcher: Any
    num_masks: int = 0

    def walk(self) -> _Cursor:
        return _Cursor(self, self.matcher.deep_copy())


class _Cursor:
    """One sequence's copy of a matcher, moved to wherever it is asked about."""

    def __init__(self, lexer: _SharedMatcher, matcher: Any) -> None:
        self.is_slow = False
        self._lexer = lexer
        self._matcher = matcher
        self._consumed: list[int] = []
        self._output: list[int] | None = None
        self._weights: bytes | None = None

    def knows(self, output: list[int]) -> bool:
        return self._output == output

    def weights(self, output: list[int]) -> bytes | None:
        """Return a byte for each token ID, 0 if the token may not follow. Return None if `output`
        does not conform. Raises _LimitError."""
        if self._output != output:
            began_s = perf_counter()
            self._weights = self._compute() if self._move_to(output) else None
            self._output = output
            self.is_slow = perf_counter() - began_s > _SLOW_S
        return self._weights

    def _compute(self) -> bytes:
        self._lexer.num_masks += 1
        weights: bytes = self._matcher.compute_logit_bias()
        self._check()
        return weights

    def _move_to(self, output: list[int]) -> bool:
        """Whether the matcher stands behind the whole output."""
        self._output = None
        common = _common_length(self._consumed, output)
        if common < len(self._consumed):
            if not self._matcher.rollback(len(self._consumed) - common):
                raise _LimitError(self._matcher.get_error())
            del self._consumed[common:]
        while len(self._consumed) < len(output):
            rest = output[len(self._consumed) :][:_STRIDE]
            count = self._matcher.try_consume_tokens(rest)
            self._check()
            self._consumed += rest[:count]
            if count < len(rest):
                self._compute()  # tells a token that does not conform from a limit
                return False
            if len(self._consumed) < len(output):
                self._compute()
        return True

    def _check(self) -> None:
        if self._matcher.is_error():
            self._lexer.num_masks = _NUM_MASKS  # its states are of no more use to anybody
            raise _LimitError(self._matcher.get_error())


class Compiler:
    """A GrammarCompiler for one tokenizer. Call it, and its grammars, from one thread."""

    def __init__(
        self,
        load_text: Callable[[], TextModel],
        limits: GrammarLimits = DEFAULT_LIMITS,
        workers: Workers | None = None,
    ) -> None:
        """`workers` do what may take long. If None, the caller does that."""
        self.workers: Workers = workers or AtOnce()
        self._factory = MatcherFactory(lambda: tokenizer_of(load_text()), limits)
        self._lexers: OrderedDict[GrammarSpec, Future[_SharedMatcher]] = OrderedDict()

    def begin(self) -> None:
        """Read the tokenizer now, if the library is there: it takes a second or more, in which no
        other thread runs."""
        with suppress(InvalidRequestError):
            library()
            self._factory.read_tokenizer()

    def __call__(self, spec: GrammarSpec) -> CompiledGrammar:
        lexer = self._lexer(spec)
        if lexer.done():
            lexer.result()  # raises for a grammar that was refused
        return CompiledGrammar(self, spec, lexer)

    def walked(self, spec: GrammarSpec, walk: _Cursor, output: list[int]) -> _Cursor:
        """Return a walk that has read `output`: `walk`, or one of a fresh matcher. A matcher with
        the full limits is tried last and decides. Raises InvalidRequestError."""
        tries: list[Callable[[], _Cursor]] = [
            lambda: walk,
            lambda: self._fresh(spec, has_full_limits=False).walk(),
            lambda: self._fresh(spec, has_full_limits=True).walk(),
        ]
        reason = ""
        for make in tries:
            try:
                one = make()
                one.weights(output)
            except _LimitError as error:
                reason = str(error)
            else:
                return one
        raise self._factory.limits.refusal(reason, spec)

    def _lexer(self, spec: GrammarSpec) -> Future[_SharedMatcher]:
        """Return the shared lexer, which is replaced once it has served for long."""
        lexer = self._lexers.pop(spec, None)
        if lexer is None or _is_worn(lexer):
            lexer = self.workers.submit(partial(self._shared, spec), is_slow=True)
        self._lexers[spec] = lexer
        if len(self._lexers) > _NUM_CACHED:
            self._lexers.popitem(last=False)
        return lexer

    def _shared(self, spec: GrammarSpec) -> _SharedMatcher:
        try:
            return self._fresh(spec, has_full_limits=False)
        except _LimitError:
            return self._fresh(spec, has_full_limits=True)

    def _fresh(self, spec: GrammarSpec, *, has_full_limits: bool) -> _SharedMatcher:
        """Return a matcher with the first mask, which every output needs.

        Raises InvalidRequestError for a grammar that cannot be read or that no output can follow,
        otherwise _LimitError.
        """
        matcher = self._factory.make(spec, has_full_limits=has_full_limits)
        matcher.compute_logit_bias()
        if matcher.is_error() and has_full_limits:
            raise self._factory.limits.refusal(matcher.get_error(), spec)
        if matcher.is_error():
            raise _LimitError(matcher.get_error())
        return _SharedMatcher(matcher)


class CompiledGrammar:
    """A Grammar: one sequence's walk, or the work in another thread that it waits for."""

    def __init__(
        self, compiler: Compiler, spec: GrammarSpec, lexer: Future[_SharedMatcher]
    ) -> None:
        self._compiler = compiler
        self._spec = spec
        self._walk: _Cursor | None = None
        self._work: Future[_SharedMatcher] | Future[_Cursor] | None = lexer
        self._is_work_its_own = False
        self._failure: str | None = None

    def __del__(self) -> None:
        """Keep no thread busy for a sequence that has gone. Others wait for the lexer, too."""
        if self._work is not None and self._is_work_its_own:
            self._work.cancel()

    @property
    def failure(self) -> str | None:
        return self._failure

    def prepare(self, output: Sequence[int], timeout_s: float = 0.0) -> bool:
        ids = list(output)
        began_s = perf_counter()
        if not self._has_walk(timeout_s):
            return False
        if self._walk is None or self._walk.knows(ids):
            return True
        walk, self._walk = self._walk, None
        work = partial(self._compiler.walked, self._spec, walk, ids)
        self._work = self._compiler.workers.submit(work, is_slow=walk.is_slow)
        self._is_work_its_own = True
        return self._has_walk(max(timeout_s - (perf_counter() - began_s), 0.0))

    def allowed(self, output: Sequence[int]) -> bytes | None:
        timeout_s = 0.0 if self._is_late() else _DRAFTED_WAIT_S
        if not self.prepare(output, timeout_s) or self._walk is None:
            return _NOTHING
        return self._walk.weights(list(output))

    def _is_late(self) -> bool:
        """Whether the answer to a drafted output is not worth waiting for."""
        return not self._has_walk(0.0) or (self._walk is not None and self._walk.is_slow)

    def _has_walk(self, timeout_s: float) -> bool:
        """Whether no work is under way. Without a walk the grammar has then failed."""
        if self._work is None:
            return True
        try:
            done = self._work.result(timeout_s)
            self._walk = done.walk() if isinstance(done, _SharedMatcher) else done
        except TimeoutError:
            return False
        except InvalidRequestError as error:
            self._failure = str(error)
        self._work = None
        return True


def _is_worn(lexer: Future[_SharedMatcher]) -> bool:
    if not lexer.done() or lexer.exception() is not None:
        return False
    return lexer.result().num_masks >= _NUM_MASKS


def _common_length(first: list[int], second: list[int]) -> int:
    if second[: len(first)] == first:
        return len(first)
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
