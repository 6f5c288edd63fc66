"""The set of `--dataset-name copying`: whole conversations, within their sizes, in one order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from deployments.cli.bench.grpc_load import request_message
from deployments.cli.bench.http_load import HttpClient
from deployments.cli.bench.load import Load
from deployments.cli.bench.names import DatasetName
from deployments.cli.bench.prompts import COPYING_FILE, Prompt, PromptForm, file_prompts
from deployments.cli.generate.prompt_file import read_prompt_file
from deployments.cli.generate.prompt_text import encode_line
from deployments.text.tokenizer import load_text_model

LINES = read_prompt_file(COPYING_FILE)
MAX_PROMPT_TOKENS, MAX_ANSWER_TOKENS = 700, 256


def taken(count: int | None = None) -> list[Prompt]:
    return file_prompts(DatasetName.COPYING, COPYING_FILE, count, PromptForm.CHAT, {})


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


def test_each_run_has_a_salt_of_its_own() -> None:
    load = Load(prompts=taken(4), arrivals_s=[0.0] * 4, max_concurrency=1, timeout_s=1.0)
    assert load.for_one_run() is load
    salted = Load(
        prompts=load.prompts,
        arrivals_s=load.arrivals_s,
        max_concurrency=1,
        timeout_s=1.0,
        is_salted=True,
    )
    salts = [{one.cache_salt for one in salted.for_one_run().prompts} for _ in range(3)]
    assert [len(own) for own in salts] == [1, 1, 1]
    assert len(set.union(*salts)) == 3
    assert None not in set.union(*salts)


def test_the_salt_is_sent_over_http_and_grpc_and_extra_fields_win() -> None:
    prompt = replace(taken(1)[0], cache_salt="own")
    (plain,) = taken(1)
    for extra, salt in ({}, "own"), ({"cache_salt": "other"}, "other"):
        assert http_body(prompt, extra)["cache_salt"] == salt
        assert request_message("m", prompt, extra).cache_salt == salt
    assert "cache_salt" not in http_body(plain, {})
    assert request_message("m", plain, {}).cache_salt == ""


def http_body(prompt: Prompt, extra: dict[str, str]) -> dict[str, object]:
    session = cast(Any, None)
    client = HttpClient(http=session, root="", model="m", is_chat=True, extra_body=extra)
    return client._body(prompt)
