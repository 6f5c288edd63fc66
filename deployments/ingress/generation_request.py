"""A client's request, whatever the protocol, before and after it was checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deployments.ingress.answer import AnswerOptions, Reading
from deployments.ingress.output import OutputOptions
from specdec_core.request import Request
from specdec_core.seeds import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """The part of an answer that a client received before its stream broke."""

    token_ids: Sequence[Sequence[int]]
    """Token IDs received of each choice."""
    seed: int | None = None
    """Seed in the answer's first chunk."""
    system_fingerprint: str = ""
    """System fingerprint in the answer's first chunk. Empty: not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A client's request, in either protocol. None: the client did not set the field."""

    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Input of `resolve_sampling`."""
    stop: Sequence[str] = ()
    speculation_enabled: bool = True
    num_draft_tokens: int | None = None
    spec_method: str | None = None
    priority: int = 0
    cache_salt: str = ""
    client: str = ""
    """Name of the API key."""
    request_id: str = ""
    timeout_s: float | None = None
    view: OutputOptions = field(default_factory=OutputOptions)
    truncate_prompt_tokens: int | None = None
    """Number of token IDs to keep, from the end of the prompt."""
    resume: Resume | None = None
    answer: AnswerOptions | None = None
    """None: the answer's text is not read."""
    reading: Reading | None = None
    """Derived from `answer` and the prompt."""
    prompt_field: str = "prompt"
    max_tokens_field: str = "max_tokens"
    """The client's names of two fields, for error messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A checked request, ready to run."""

    request: Request
    stop: tuple[str, ...]
    view: OutputOptions
    reading: Reading | None = None
    """None: the text is the content."""
    choice: int = 0
    """Index among the choices of the same prompt."""


def choices_of(ones: Sequence[Generation], n: int) -> list[Generation]:
    """Return `n` choices of every prompt, in prompt order.

    Names and seeds derive from those of the first request.
    """
    first = ones[0].request
    return [
        _choice(one, first.request_id, place * n + j, j, derive_seed(first.params.seed, j))
        for place, one in enumerate(ones)
        for j in range(n)
    ]


def _choice(one: Generation, first_id: str, place: int, choice: int, seed: int) -> Generation:
    request = replace(
        one.request,
        request_id=f"{first_id}-{place}" if place else first_id,
        params=replace(one.request.params, seed=seed),
    )
    return replace(one, request=request, choice=choice)
