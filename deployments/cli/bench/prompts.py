"""Prompts of a load, from a file or drawn at random without a tokenizer."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from deployments.cli.bench.names import DatasetName, Vocabulary
from deployments.cli.generate.prompt_file import PromptLine, read_prompt_file, select
from deployments.cli.generate.prompt_text import Conversation, first_messages
from specdec_core.errors import InvalidRequestError

COPYING_FILE = Path(__file__).with_name("data") / "copying.jsonl"
"""Chats with text to copy: edits, second turns, repeated questions, extraction with a template."""
_SPREAD = (DatasetName.SPEC_BENCH, DatasetName.COPYING)
"""Data sets from which a part is taken evenly across categories."""

_COMMON = (
    "the time of year people way day man thing woman life child world school state family student "
    "group country problem hand part place case week company system program question work number "
    "night point home water room mother area money story fact month lot right study book eye job"
)
_WORDS = _COMMON.split()


class PromptForm(StrEnum):
    """Kinds of input that a request can carry."""

    COMPLETION = "completion"
    """Text as it is, or token IDs."""
    CHAT = "chat"
    """A conversation."""
    ANY = "any"
    """Any of them. It is a conversation unless raw prompts are requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request: its input in exactly one form, and its sampling parameters."""

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: Conversation | None = None
    sampling: Mapping[str, Any]
    """Sent sampling parameters, by the names of the HTTP fields."""
    cache_salt: str | None = None
    """Requests of an equal salt share cached prefixes. None means that the request sends no
    salt."""


def file_prompts(
    name: DatasetName,
    path: Path,
    num_prompts: int | None,
    form: PromptForm,
    sampling: Mapping[str, Any],
    *,
    is_raw: bool = False,
) -> list[Prompt]:
    """Return `num_prompts` lines as prompts. None takes each line once.

    If the file has fewer lines, they repeat from the start. Sampling parameters of a line override
    `sampling`. Raises InvalidRequestError naming the line that `form` cannot carry.
    """
    lines = read_prompt_file(path)
    if name in _SPREAD:
        chosen = select(lines, sample=num_prompts or len(lines))
    else:
        chosen = select(lines, limit=num_prompts)
    prompts = [_from_line(path, line, form, sampling, is_raw) for line in chosen]
    return list(islice(cycle(prompts), num_prompts or len(prompts)))


def _from_line(
    path: Path, line: PromptLine, form: PromptForm, sampling: Mapping[str, Any], is_raw: bool
) -> Prompt:
    named = {key: value for key, value in line.named_sampling.items() if value is not None}
    settings = {**sampling, **named}
    is_chat = form is PromptForm.CHAT or (form is PromptForm.ANY and not is_raw)
    if line.prompt_token_ids is not None:
        if form is PromptForm.CHAT:
            raise InvalidRequestError(f"{path} line {line.line_number}: a chat takes no token ids")
        return Prompt(token_ids=tuple(line.prompt_token_ids), sampling=settings)
    if is_chat:
        return Prompt(messages=first_messages(line), sampling=settings)
    if line.messages is not None:
        raise InvalidRequestError(
            f"{path} line {line.line_number}: messages need a chat: --backend openai-chat"
        )
    return Prompt(text=line.first_text, sampling=settings)


def random_prompts(
    num_prompts: int,
    length: int,
    vocabulary: Vocabulary,
    form: PromptForm,
    sampling: Mapping[str, Any],
    *,
    seed: int,
) -> list[Prompt]:
    """Return prompts of `length` random token IDs, or for a chat of `length` common words."""
    rng = random.Random(seed)
    if form is PromptForm.CHAT:
        return [Prompt(messages=_words(rng, length), sampling=sampling) for _ in range(num_prompts)]
    ids: Sequence[int] = range(vocabulary.first, vocabulary.last + 1)
    return [
        Prompt(token_ids=tuple(rng.choices(ids, k=length)), sampling=sampling)
        for _ in range(num_prompts)
    ]


def _words(rng: random.Random, count: int) -> Conversation:
    return [{"role": "user", "content": " ".join(rng.choices(_WORDS, k=count))}]
