"""Prompts of a load, from a file or drawn at random without a tokenizer."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from deployments.cli.bench.client import Prompt
from deployments.cli.bench.names import DatasetName
from deployments.cli.generate.prompt_file import PromptLine, read_prompt_file, select
from deployments.cli.generate.prompt_text import first_messages
from deployments.text.sampling_fields import SAMPLING_NAMES
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


def file_prompts(
    name: DatasetName,
    path: Path,
    num_prompts: int | None,
    fields: Mapping[str, Any],
    *,
    is_chat: bool,
) -> list[Prompt]:
    """Return `num_prompts` lines as prompts. None takes each line once.

    If the file has fewer lines, they repeat from the start. Sampling parameters of a line override
    `fields`. Raises InvalidRequestError naming the line that the route cannot carry.
    """
    lines = read_prompt_file(path)
    if name in _SPREAD:
        chosen = select(lines, sample=num_prompts or len(lines))
    else:
        chosen = select(lines, limit=num_prompts)
    prompts = [_from_line(path, line, fields, is_chat) for line in chosen]
    return list(islice(cycle(prompts), num_prompts or len(prompts)))


def _from_line(path: Path, line: PromptLine, fields: Mapping[str, Any], is_chat: bool) -> Prompt:
    own = {**fields, **line.model_dump(include=SAMPLING_NAMES, exclude_none=True)}
    if line.prompt_token_ids is not None and is_chat:
        raise InvalidRequestError(f"{path} line {line.line_number}: a chat takes no token ids")
    if line.prompt_token_ids is not None:
        return Prompt(token_ids=tuple(line.prompt_token_ids), fields=own)
    if is_chat:
        return Prompt(messages=first_messages(line), fields=own)
    if line.messages is not None:
        raise InvalidRequestError(
            f"{path} line {line.line_number}: messages need --backend openai-chat"
        )
    return Prompt(text=line.first_text, fields=own)


def random_prompts(
    num_prompts: int, num_words: int, fields: Mapping[str, Any], *, is_chat: bool, seed: int
) -> list[Prompt]:
    """Return prompts of `num_words` random common words."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(_WORDS, k=num_words)) for _ in range(num_prompts)]
    if not is_chat:
        return [Prompt(text=text, fields=fields) for text in texts]
    return [Prompt(messages=[{"role": "user", "content": text}], fields=fields) for text in texts]
