"""A client's request and its results: plain frozen data, token IDs only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from specdec_core.errors import InvalidRequestError, out_of_range
from specdec_core.logprobs import TokenLogprobs
from specdec_core.sampling_params import SamplingParams, SamplingRules

MAX_PRIORITY = 2**31 - 1
MAX_SALT_LEN = 256


class ErrorKind(StrEnum):
    """Origin of an error."""

    FAILED = "failed"
    """The service: running the request failed."""
    RETRYABLE = "retryable"
    """The same request may succeed when it is sent again."""
    TIMEOUT = "timeout"
    """The request exceeded its own time limit."""
    INVALID = "invalid"
    """The caller: the request cannot be served as it is."""


class FinishReason(StrEnum):
    """Reason why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and how to continue it."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    end_token_ids: frozenset[int] = frozenset()
    """The model's own end IDs (generation_config may list several); dropped by `ignore_eos`."""
    emitted_token_ids: tuple[int, ...] = ()
    """Tokens that an earlier attempt has already emitted. The request resumes after them."""
    resume_token_ids: tuple[int, ...] = ()
    """The first tokens of this request's answer, as its client received them before its stream
    broke. They are checked, not trusted. They are emitted once the target has chosen the same ones,
    and the first difference ends the request."""
    speculation_enabled: bool = True
    """False: decode without speculation. The tokens are the same."""
    num_draft_tokens: int | None = None
    """Maximum drafted tokens per round, at least 0. None: the configured maximum."""
    spec_method: str | None = None
    """Method of drafting for this request: a SpecMethod or the name of a local drafter. None: the
    configured method. If no draft model is available, prompt lookup replaces it."""
    priority: int = 0
    """Lower is served first, among requests of the same client."""
    client: str = ""
    """Client name (API key) used for fair scheduling."""
    timeout_s: float | None = None
    """Seconds after arrival at which an unfinished request is ended. None: no limit."""
    is_background: bool = False
    """True: the request takes only capacity that other requests leave, and counts in no metric of
    requests."""
    cache_salt: str = ""
    """Only requests with an equal salt share cached prefixes. Other clients learn nothing about
    this prompt from measured times."""
    pinned_fingerprint: str = ""
    """Numerics fingerprint of the targets that produced the first tokens. Only targets with the
    same fingerprint may continue this request. Empty: any target."""

    def __post_init__(self) -> None:
        if not self.prompt_token_ids:
            raise InvalidRequestError(
                "the prompt is empty: at least 1 token is needed", param="prompt"
            )
        if self.priority or self.num_draft_tokens is not None or self.timeout_s is not None:
            self._check_numbers()
        if self.cache_salt:
            self._check_salt()
        if self.emitted_token_ids or self.resume_token_ids:
            self._check_resume()
        if self.params.allowed_token_ids:
            self._check_choice()

    def _check_numbers(self) -> None:
        """Check the numbers that a request may leave out."""
        if self.num_draft_tokens is not None and self.num_draft_tokens < 0:
            raise InvalidRequestError(
                f"num_draft_tokens must not be negative, got {self.num_draft_tokens}",
                param="speculative.num_speculative_tokens",
            )
        if not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            limits = f"in -{MAX_PRIORITY}..{MAX_PRIORITY}"
            raise out_of_range("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY, limits)
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise InvalidRequestError(
                f"timeout_s must be positive, got {self.timeout_s}", param="timeout_s"
            )

    def _check_salt(self) -> None:
        if len(self.cache_salt) > MAX_SALT_LEN:
            raise InvalidRequestError(
                f"cache_salt has {len(self.cache_salt)} characters, the limit is {MAX_SALT_LEN}",
                param="cache_salt",
                code="string_above_max_length",
            )

    def _check_resume(self) -> None:
        """Check that this request can have emitted the IDs of an earlier attempt."""
        ids, most = self.resume_token_ids, self.params.max_tokens
        if len(self.emitted_token_ids) > most:
            raise InvalidRequestError(
                f"{len(self.emitted_token_ids)} tokens were emitted already, max_tokens is {most}"
            )
        if len(ids) > most:
            raise InvalidRequestError(
                f"resume has {len(ids)} token ids, max_tokens is {most}",
                param="resume.token_ids",
            )
        if not self.stop_ids.isdisjoint(ids[:-1]):
            index = next(i for i, token_id in enumerate(ids) if token_id in self.stop_ids)
            raise InvalidRequestError(
                f"resume: token id {ids[index]} at position {index} ends the answer, "
                f"but {len(ids) - index - 1} token ids follow it",
                param="resume.token_ids",
            )

    def _check_choice(self) -> None:
        """Check that at least one allowed ID is left where a token is sampled."""
        params = self.params
        banned = {word[0] for word in params.bad_words if len(word) == 1}
        if params.min_tokens:
            banned |= self.stop_ids
        if banned.issuperset(params.allowed_token_ids):
            raise InvalidRequestError(
                "allowed_token_ids: bad_words and min_tokens ban every one of "
                f"{sorted(set(params.allowed_token_ids))[:8]}, so that no token can be chosen",
                param="allowed_token_ids",
            )

    @property
    def stop_ids(self) -> frozenset[int]:
        """Every ID that ends this request. Only emitted tokens are compared, never the prompt."""
        ends = frozenset() if self.params.ignore_eos else self.end_token_ids
        return ends.union(self.params.stop_token_ids)

    @property
    def rules(self) -> SamplingRules:
        return SamplingRules(
            self.params, len(self.prompt_token_ids), self.stop_ids, self.cache_salt
        )

    @property
    def max_len(self) -> int:
        """Prompt length plus the maximum of emitted tokens."""
        return len(self.prompt_token_ids) + self.params.max_tokens


def cut_at_stop(
    tokens: tuple[int, ...], stop_ids: frozenset[int], budget: int
) -> tuple[tuple[int, ...], FinishReason | None]:
    """Return `tokens` up to the first stop ID or to `budget` tokens, and why the request ends."""
    if not stop_ids.isdisjoint(tokens):
        for count, token in enumerate(tokens[:budget], start=1):
            if token in stop_ids:
                return tokens[:count], FinishReason.STOP
    if len(tokens) >= budget:
        return tokens[:budget], FinishReason.LENGTH
    return tokens, None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStats:
    """Speculation statistics of one request."""

    num_rounds: int = 0
    """Target passes that committed tokens."""
    num_drafted: int = 0
    num_accepted: int = 0
    steps: tuple[tuple[int, int], ...] = ()
    """(drafted, accepted) of every round with a proposal, in order."""
    queue_s: float = 0.0
    """Seconds between arrival and admission."""
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens that the target found in its prefix cache."""

    @property
    def num_proposed_rounds(self) -> int:
        """Rounds that checked a proposal; the others were plain decoding."""
        return len(self.steps)

    @property
    def acceptance_histogram(self) -> tuple[int, ...]:
        """Index j: rounds with a proposal that accepted j of its tokens."""
        counts = Counter([num_accepted for _, num_accepted in self.steps])
        return tuple([counts[number] for number in range(max(counts, default=-1) + 1)])

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens committed per round with a proposal, the next token included."""
        rounds = self.num_proposed_rounds
        return 1.0 + self.num_accepted / rounds if rounds else 0.0


class TokenEvent(NamedTuple):
    """Newly committed tokens of one request; the last event carries the finish reason. A tuple,
    because the scheduler makes one per sequence and round (see LeaseRow)."""

    request_id: str
    index: int  # type: ignore[assignment]  # nobody asks it for tuple.index
    """Place of the first token of `token_ids` among the request's emitted tokens."""
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stats: RequestStats | None = None
    """Only in the last event."""
    error: str | None = None
    """Only with FinishReason.ERROR: the cause, in words for the client."""
    error_kind: ErrorKind = ErrorKind.FAILED
    """Valid only with FinishReason.ERROR."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One entry per token if the request asked for them, otherwise empty."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """Sent with the first token if the request asked for them: entries of every prompt token but
    the first.
    """
    pinned_fingerprint: str = ""
    """Fingerprint of the exact targets that chose the tokens, sent with the first token of an
    attempt and with its end. See Request."""
