"""The set of `--dataset-name copying`: whole conversations, within their sizes, in one order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from deployments.cli.bench.client import Prompt
from deployments.cli.bench.names import DatasetName
from deployments.cli.bench.prompts import COPYING_FILE, file_prompts
from deployments.cli.generate.prompt_file import read_prompt_file
from deployments.cli.generate.prompt_text import encode_line
from deployments.text.tokenizer import load_text_model

LINES = read_prompt_file(COPYING_FILE)
MAX_PROMPT_TOKENS, MAX_ANSWER_TOKENS = 700, 256


def taken(count: int | None = None) -> list[Prompt]:
    return file_prompts(DatasetName.COPYING, COPYING_FILE, count, {}, is_chat=True)


def test_every_category_has_its_number_and_every_line_an_id() -> None:
    counts = Counter(line.category for line in LINES)
    assert counts == {"edit": 28, "second_turn": 24, "asked_again": 24, "extract": 24}
    assert len({line.id for line in LINES}) == len(LINES)
    assert all(str(line.id).rpartition("-")[0] == line.category for line in LINES)


def test_the_file_is_small() -> None:
    assert COPYING_FILE.stat().st_size < 400_000


def test_a_line_is_a_whole_conversation_that_waits_for_an_answer() -> None:
    for line in LINES:
        assert line.messages is not None
        roles = [message["role"] for message in line.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], line.id
        assert all(message["content"].strip() for message in line.messages), line.id


def test_no_two_lines_ask_the_same() -> None:
    assert len({str(line.messages) for line in LINES}) == len(LINES)


def test_a_part_has_all_categories_and_the_same_order_each_time() -> None:
    asked = [prompt.messages for prompt in taken(8)]
    by_messages = {str(line.messages): line.category for line in LINES}
    assert set(Counter(by_messages[str(messages)] for messages in asked).values()) == {2}
    assert asked == [prompt.messages for prompt in taken(8)]
    assert [prompt.messages for prompt in taken()] == [line.messages for line in LINES]


@pytest.mark.slow
def test_every_prompt_and_its_answer_fit_the_demos_context(demo_model: Path) -> None:
    text = load_text_model(str(demo_model))
    lengths = {line.id: len(encode_line(text, line, is_raw=False)) for line in LINES}
    assert max(lengths.values()) <= MAX_PROMPT_TOKENS, lengths
    assert text.max_model_len >= MAX_PROMPT_TOKENS + MAX_ANSWER_TOKENS
