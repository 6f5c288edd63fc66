"""What a runner and the comparison tell each other: one JSON object a line, either way.

Standard library only: runners import it in environments that have nothing else in common.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The first message to a runner."""

    target: str
    drafts: dict[str, str] = field(default_factory=dict)
    """Folders (for OpenVINO GGUF files) of the draft models, by the names that turns use."""
    method: str | None = None
    """For engines that settle who drafts when they load; None: every turn says."""
    spec_tokens: int = 0
    """K, for the same engines."""
    max_batch_size: int
    max_model_len: int
    dtype: str
    threads: int
    unused_id: int
    """An id of the vocabulary that no prompt has: what may stand for padding."""
    options: dict[str, str] = field(default_factory=dict)
    """Of this one engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Decode all prompts, each to exactly max_tokens tokens, whatever they are."""

    method: str
    draft: str | None = None
    spec_tokens: int = 0
    batch_size: int
    """Sequences at a time."""
    prompts: list[list[int]]
    max_tokens: int
    temperature: float
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The answer to Load."""

    seconds: float
    facts: dict[str, str]
    """Versions, dtype, threads, and whatever else decides how fast it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The answer to a Turn."""

    seconds: float
    """From the ids of the prompts to all ids of the answers; no loading, no text."""
    token_ids: list[list[int]]
    """Of the answers, in the order of the prompts."""
    figures: dict[str, float] = field(default_factory=dict)
    """Of acceptance, where the engine tells any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The answer to anything that went wrong."""

    reason: str


Message = Load | Turn | Loaded | Decoded | Failed

_KINDS = {kind.__name__: kind for kind in (Load, Turn, Loaded, Decoded, Failed)}


def reason(answer: Message) -> str:
    """Return why an answer is not the one that was expected."""
    return answer.reason if isinstance(answer, Failed) else f"unexpected {type(answer).__name__}"


def to_line(message: Message) -> str:
    return json.dumps({type(message).__name__: asdict(message)}) + "\n"


def from_line(line: str) -> Message:
    """Raises ValueError for a line that is no message."""
    content = json.loads(line)
    if not isinstance(content, dict) or len(content) != 1 or not content.keys() <= _KINDS.keys():
        raise ValueError(f"no message of a runner: {line[:200]!r}")
    ((kind, fields),) = content.items()
    try:
        return _KINDS[kind](**fields)
    except TypeError as error:
        raise ValueError(f"{kind}: {error}") from error
