"""What a client asked, whatever the protocol, before and after it was checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.ingress.answer import AnswerOptions, Reading
from deployments.ingress.output import OutputOptions
from specdec_core.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """What a client has of an answer whose stream broke."""

    token_ids: Sequence[Sequence[int]]
    """Of each choice."""
    seed: int | None = None
    """That of the answer's first chunk."""
    system_fingerprint: str = ""
    """That of the answer's first chunk. Empty: not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What a client asked, in either protocol. None: the client did not say."""

    model: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """For `resolve_sampling`."""
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
    """Keep the last so many ids of the prompt."""
    resume: Resume | None = None
    answer: AnswerOptions | None = None
    """None: the answer's text is not read."""
    reading: Reading | None = None
    """Follows from `answer` and the prompt."""
    prompt_field: str = "prompt"
    max_tokens_field: str = "max_tokens"
    """The client's names of two fields, for errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A checked request, ready to run."""

    request: Request
    stop: tuple[str, ...]
    view: OutputOptions
    reading: Reading | None = None
    """None: the text is the content."""
    choice: int = 0
    """Which of its prompt's."""
