"""Input of `specdec generate`: one JSON object per line, and the selection of lines.

A line has Spec-Bench's `turns`, or `{"prompt": ...}`, `{"messages": ...}` or `{"prompt_token_ids":
...}`. Sampling parameters of a line override the flags.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from deployments.api.http.known_fields import OFFLINE, check_neutral
from deployments.text.chat_messages import checked_messages
from deployments.text.sampling_fields import SAMPLING_NAMES, SamplingFields
from deployments.validation_errors import describe_errors
from specdec_core.errors import InvalidRequestError

_PROMPT_FIELDS = ("turns", "prompt", "messages", "prompt_token_ids")

TokenId = Annotated[int, Field(ge=0)]


class PromptLine(SamplingFields):
    """One line of the file.

    Fields of a request that are not enforced here are refused. All others (a reference answer) are
    ignored.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    line_number: int
    id: int | str | None = None
    question_id: int | str | None = None
    category: str = ""
    turns: Annotated[list[str], Field(min_length=1)] | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    prompt_token_ids: list[TokenId] | None = None

    logprobs: int | None = None
    max_completion_tokens: int | None = None

    @model_validator(mode="after")
    def _check_prompt(self) -> PromptLine:
        given = [name for name in _PROMPT_FIELDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(_PROMPT_FIELDS)} is needed, got {given}")
        if self.messages is not None:
            checked_messages(self.messages)
        return self

    @property
    def output_id(self) -> int | str:
        """The line's own ID, otherwise its number."""
        named = [name for name in (self.id, self.question_id) if name is not None]
        return named[0] if named else self.line_number

    @property
    def first_text(self) -> str:
        """The prompt, or the first turn. Empty for a line of messages or token IDs."""
        return self.prompt if self.prompt is not None else (self.turns or [""])[0]

    @property
    def sampling_overrides(self) -> dict[str, Any]:
        """The line's own sampling parameters, for `resolve_sampling`."""
        named = self.model_dump(include=SAMPLING_NAMES) | {"logprobs": self.logprobs}
        if self.max_completion_tokens is not None:
            named["max_tokens"] = self.max_completion_tokens
        return named


def read_prompt_file(path: Path) -> list[PromptLine]:
    """Return every line that is not blank. Raises InvalidRequestError naming the first bad line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path} is not UTF-8 text: {error}") from error
    numbered = enumerate(text.split("\n"), start=1)
    lines = [_parse(path, number, line) for number, line in numbered if line.strip()]
    if not lines:
        raise InvalidRequestError(f"{path} has no lines")
    return lines


def _parse(path: Path, number: int, line: str) -> PromptLine:
    try:
        content = from_json(line)
    except ValueError as error:
        raise InvalidRequestError(f"{path} line {number} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidRequestError(f"{path} line {number} is not a JSON object")
    try:
        parsed = PromptLine.model_validate({**content, "line_number": number})
        for name, value in (parsed.model_extra or {}).items():
            check_neutral(name, value, OFFLINE)
    except ValidationError as error:
        raise InvalidRequestError(f"{path} line {number}: {describe_errors(error)}") from error
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{path} line {number}: {error}") from error
    return parsed


def select(
    lines: Sequence[PromptLine], *, limit: int | None = None, sample: int | None = None
) -> list[PromptLine]:
    """Return the first `limit` lines, or `sample` lines spread evenly over the categories, in file
    order."""
    if sample is None:
        return list(lines[:limit])
    by_category = defaultdict(list)
    for line in lines:
        by_category[line.category].append(line)
    quotas = _quotas({name: len(members) for name, members in by_category.items()}, sample)
    chosen = [
        line for name, members in by_category.items() for line in _spread(members, quotas[name])
    ]
    return sorted(chosen, key=lambda line: line.line_number)


def _quotas(sizes: dict[str, int], sample: int) -> Counter[str]:
    """Return the number of lines from each category.

    Each category in turn gets one line, until `sample` lines are given or the categories are used
    up.
    """
    quotas: Counter[str] = Counter()
    wanted = min(sample, sum(sizes.values()))
    for name in cycle(sizes):
        if quotas.total() == wanted:
            return quotas
        quotas[name] += quotas[name] < sizes[name]
    return quotas


def _spread(members: Sequence[PromptLine], count: int) -> list[PromptLine]:
    return [members[index * len(members) // count] for index in range(count)]
