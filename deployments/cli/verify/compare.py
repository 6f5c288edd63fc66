"""Output of a decoding and its first difference from the reference: token IDs, ends,
log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, TokenEvent


@dataclass(eq=False, slots=True)
class Answer:
    """One request's output, gathered from its events."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None

    def take(self, event: TokenEvent) -> None:
        self.token_ids.extend(event.token_ids)
        self.logprobs.extend(event.logprobs)
        self.finish_reason = event.finish_reason
        self.error = event.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """First difference between an answer and the reference."""

    prompt: int
    """Index among the chosen lines."""
    position: int
    """Index among the emitted tokens."""
    expected: int | None
    """Token ID of the reference at the position. None if the reference had ended."""
    got: int | None
    reasons: tuple[str | None, str | None]
    """Finish reasons of the reference and of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobChange:
    """Distance of log-probabilities from the reference's, over answers with equal token IDs."""

    num_answers: int
    num_missing: int
    """Number of answers with tokens that have no log-probabilities."""
    num_different: int
    """Number of answers with at least one value whose bits differ."""
    largest: float


def first_difference(prompt: int, expected: Answer, got: Answer) -> Difference | None:
    """Return the first difference. None if token IDs and ends are equal."""
    pairs = zip_longest(expected.token_ids, got.token_ids)
    position = next(
        (index for index, (a, b) in enumerate(pairs) if a != b), len(expected.token_ids)
    )
    is_equal = position == len(expected.token_ids) == len(got.token_ids)
    if is_equal and expected.finish_reason is got.finish_reason:
        return None
    return Difference(
        prompt=prompt,
        position=position,
        expected=_id_at(expected.token_ids, position),
        got=_id_at(got.token_ids, position),
        reasons=(expected.finish_reason, got.finish_reason),
    )


def _id_at(token_ids: Sequence[int], position: int) -> int | None:
    return token_ids[position] if position < len(token_ids) else None


def logprob_change(pairs: Iterable[tuple[Answer, Answer]]) -> LogprobChange:
    """Compare (reference, answer) pairs value by value. Pairs with different token IDs are left
    out."""
    compared = [(a, b) for a, b in pairs if a.token_ids == b.token_ids]
    return LogprobChange(
        num_answers=len(compared),
        num_missing=sum(len(b.logprobs) != len(b.token_ids) for _, b in compared),
        num_different=sum(a.logprobs != b.logprobs for a, b in compared),
        largest=max((_largest_change(a, b) for a, b in compared), default=0.0),
    )


def _largest_change(expected: Answer, got: Answer) -> float:
    """Return the largest change over the token IDs that both report."""
    largest = 0.0
    for ours, theirs in zip(expected.logprobs, got.logprobs, strict=False):
        known = dict(ours.top)
        pairs = [(known[token_id], value) for token_id, value in theirs.top if token_id in known]
        for a, b in ((ours.logprob, theirs.logprob), *pairs):
            # The distance of equal infinities is 0.
            largest = max(largest, 0.0 if a == b else abs(a - b))
    return largest
