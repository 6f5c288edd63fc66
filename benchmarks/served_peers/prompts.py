"""The prompts that ship with the comparison: 32 short chats, 32 with a text of a thousand tokens.

Both are this project's own; the texts are sentences of its documents. Paired turns may also ask the
chats with text to copy of `specdec bench serve --dataset-name copying`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from deployments.cli.bench.client import Prompt
from deployments.cli.bench.prompts import COPYING_FILE
from deployments.cli.generate.prompt_file import PromptLine, read_prompt_file
from deployments.cli.generate.prompt_text import encode_line, first_messages
from deployments.text.tokenizer import load_text_model
from specdec_core.errors import InvalidRequestError

FILE = Path(__file__).with_name("prompts.jsonl")
SHORT, LONG = "short", "long"
COPYING = "copying"
"""All chats with text to copy."""
COPYING_KINDS = (COPYING, "edit", "second_turn", "asked_again", "extract")
"""The whole set, and its categories."""


class Prompts:
    """By kind, in the file's order."""

    def __init__(self, path: Path = FILE) -> None:
        self._lines: dict[str, list[PromptLine]] = {SHORT: [], LONG: []}
        for line in read_prompt_file(path):
            if line.category not in self._lines:
                raise InvalidRequestError(f"{path}: category {line.category!r}, not short or long")
            self._lines[line.category].append(line)
        self._lines |= {kind: [] for kind in COPYING_KINDS}
        for line in read_prompt_file(COPYING_FILE):
            self._lines[COPYING].append(line)
            self._lines[line.category].append(line)

    def lines(self, kind: str, number: int, first: int) -> list[PromptLine]:
        """`number` of them from place `first` on, from the start again after the last."""
        own = self._lines[kind]
        return [own[(first + place) % len(own)] for place in range(number)]

    def median_tokens(self, folder: str, kind: str) -> float:
        return median(len(ids) for ids in token_ids(folder, self._lines[kind]))


def has_fixed_length(kind: str) -> bool:
    """Whether every answer has exactly the asked number of tokens. One to a chat with text to copy
    ends where the model ends it: what a model adds to a whole answer repeats it."""
    return kind not in COPYING_KINDS


def request_prompt(line: PromptLine, sampling: Mapping[str, Any]) -> Prompt:
    return Prompt(messages=first_messages(line), fields=sampling)


def token_ids(folder: str, lines: Sequence[PromptLine]) -> list[list[int]]:
    """As a server sees them: behind the model's chat template."""
    text = load_text_model(folder)
    return [list(encode_line(text, line, is_raw=False)) for line in lines]
