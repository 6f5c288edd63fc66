from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployments.api.http.known_fields import OFFLINE
from deployments.api.http.schemas import ChatBody, CompletionBody
from deployments.cli.generate.prompt_file import PromptLine, read_prompt_file, select
from deployments.cli.generate.prompt_text import encode_line
from specdec_core.errors import InvalidRequestError
from tests.deployments.fake_text import fake_text_model

Write = Callable[..., Path]


def test_every_form_of_a_line_is_read(write_lines: Write) -> None:
    path = write_lines(
        {"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": ["x"]},
        {"id": "a", "prompt": "hello"},
        "",
        {"messages": [{"role": "user", "content": "hi"}], "seed": 7, "max_tokens": 3},
        {"prompt_token_ids": [1, 2], "logit_bias": {"4": -1.5}, "logprobs": 0, "bad_words": ["x"]},
    )
    lines = read_prompt_file(path)
    assert [line.output_id for line in lines] == [81, "a", 4, 5]
    assert lines[0].first_text == "one"
    assert _named(lines[2]) == {"seed": 7, "max_tokens": 3}
    assert _named(lines[3]) == {"logit_bias": {"4": -1.5}, "logprobs": 0, "bad_words": ["x"]}


def _called(arguments: str) -> dict[str, Any]:
    call = {"function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def test_messages_become_prompts_as_over_http(write_lines: Write) -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    replayed = {"role": "assistant", "content": None, "reasoning": "x", "id": "7", "tool_calls": []}
    (line,) = read_prompt_file(
        write_lines({"messages": [{"role": "developer", "content": parts}, replayed]})
    )
    text = fake_text_model()
    assert encode_line(text, line, is_raw=False) == text.encode("A\nB")
    pirate = line.model_copy(update={"messages": [{"role": "pirate", "content": "x"}]})
    with pytest.raises(InvalidRequestError, match="unknown role pirate"):
        encode_line(text, pirate, is_raw=False)


def _named(line: PromptLine) -> dict[str, Any]:
    return {name: value for name, value in line.sampling_overrides.items() if value is not None}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"prompt": "x"', "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        (r'{"prompt": "\ud800"}', "not JSON"),
        ({}, "exactly one of"),
        ({"prompt": "x", "turns": ["y"]}, "exactly one of"),
        ({"prompt": 5}, "prompt"),
        ({"turns": []}, "turns"),
        ({"messages": []}, "messages is empty"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": "x", "audio": {"id": 1}}]}, "audio"),
        ({"messages": [_called("[" * 90_000)]}, "nested too deeply"),
        ({"messages": [_called("[]")]}, "arguments: must be a JSON object"),
        ({"prompt_token_ids": [-1]}, "prompt_token_ids"),
        ({"prompt": "x", "seed": "7"}, "seed"),
        ({"prompt": "x", "temperature": "hot"}, "a valid number, got 'hot'"),
        ({"prompt": "x", "logit_bias": {"5": "much"}}, "logit_bias"),
        ({"prompt": "x", "bad_words": "word"}, "bad_words"),
        ({"prompt": "x", "stop": "a"}, 'stop="a" is not supported here'),
        ({"prompt": "x", "stop": ["a"]}, "use stop_token_ids"),
        ({"prompt": "x", "n": 2}, "n=2"),
        ({"prompt": "x", "best_of": 2}, "best_of=2"),
        ({"prompt": "x", "echo": True}, "echo=true"),
        ({"prompt": "x", "response_format": {"type": "json_object"}}, "response_format="),
        ({"prompt": "x", "structured_outputs": {"regex": "a"}}, "structured_outputs="),
        ({"prompt": "x", "guided_json": {}}, "guided_json="),
        ({"prompt": "x", "tools": [{}]}, "tools="),
        ({"prompt": "x", "typical_p": 0.5}, "typical_p=0.5"),
        ({"prompt": "x", "n_predict": 5}, "use max_tokens"),
        ({"prompt": "x", "max_completion_tokens": "5"}, "max_completion_tokens"),
    ],
)
def test_a_bad_line_is_named_by_its_number(
    write_lines: Write, line: object, complaint: str
) -> None:
    path = write_lines({"prompt": "fine"}, "", line)
    with pytest.raises(InvalidRequestError, match=r"line 3\b") as caught:
        read_prompt_file(path)
    assert complaint in str(caught.value)


NO_EFFECT = {
    "model",
    "stream",
    "stream_options",
    "speculative",
    "return_token_ids",
    "priority",
    "cache_salt",
    "request_id",
    "parallel_tool_calls",
}
"""Fields of a request that change no token of a line."""


def test_fields_that_change_nothing_and_references_are_ignored(write_lines: Write) -> None:
    path = write_lines(
        {"prompt": "x", "answers": ["a"], "reference": 1, "system": "b", "options": ["c", "d"]},
        {"prompt": "x", "n": 1, "stop": [], "tools": [], "response_format": {"type": "text"}},
        {"prompt": "x"} | dict.fromkeys(OFFLINE),
        {"prompt": "x", "model": "m", "stream": True, "user": "u", "top_n_sigma": -1},
        {"prompt": "x", "max_completion_tokens": 7, "max_tokens": 9},
    )
    lines = read_prompt_file(path)
    assert [_named(line) for line in lines] == [{}, {}, {}, {}, {"max_tokens": 7}]


def test_every_field_of_a_request_is_enforced_refused_or_without_effect() -> None:
    fields = {*ChatBody.model_fields, *CompletionBody.model_fields}
    assert fields - PromptLine.model_fields.keys() - NO_EFFECT <= OFFLINE.keys()
    assert not OFFLINE.keys() & NO_EFFECT
    assert not OFFLINE.keys() & PromptLine.model_fields.keys()


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        read_prompt_file(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_text("\n\n")
    with pytest.raises(InvalidRequestError, match="no lines"):
        read_prompt_file(path)


def _lines(**sizes: int) -> list[PromptLine]:
    names = [name for name, size in sizes.items() for _ in range(size)]
    return [
        PromptLine(line_number=number, category=name, prompt="x")
        for number, name in enumerate(names, start=1)
    ]


def test_limit_takes_the_head() -> None:
    assert [line.line_number for line in select(_lines(a=5), limit=2)] == [1, 2]


def test_sample_is_spread_evenly_over_the_categories_and_within_them() -> None:
    chosen = select(_lines(a=2, b=40, c=40), sample=12)
    assert Counter(line.category for line in chosen) == {"a": 2, "b": 5, "c": 5}
    numbers = [line.line_number for line in chosen]
    assert numbers == sorted(numbers)
    assert numbers[2:7] == [3, 11, 19, 27, 35]


def test_a_sample_larger_than_the_file_is_the_file() -> None:
    assert len(select(_lines(a=2, b=1), sample=64)) == 3


def test_spec_bench_is_sampled_over_all_categories(spec_bench: Path) -> None:
    chosen = select(read_prompt_file(spec_bench), sample=64)
    assert len(chosen) == 64
    assert len({line.category for line in chosen}) == 13
