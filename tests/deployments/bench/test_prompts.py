"""What a load sends and when: arrivals and prompts are functions of flags and seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pytest

from deployments.cli.bench.client import Prompt
from deployments.cli.bench.names import DatasetName
from deployments.cli.bench.prompts import file_prompts, random_prompts
from deployments.simulation.arrivals import arrivals
from specdec_core.errors import InvalidRequestError

INF = float("inf")
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def lines(*content: dict[str, Any]) -> Path:
        path = tmp_path / "prompts.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in content))
        return path

    return lines


def gaps(burstiness: float, seed: int = 0) -> list[float]:
    sent = arrivals(4000, rate=20.0, burstiness=burstiness, seed=seed)
    return [later - earlier for earlier, later in pairwise([0.0, *sent])]


def test_without_a_rate_everything_is_sent_at_once() -> None:
    assert arrivals(3, rate=INF, burstiness=1.0, seed=0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_burstiness_of_a_gamma_distribution(burstiness: float) -> None:
    """Its standard deviation is mean / sqrt(burstiness)."""
    drawn = gaps(burstiness)
    assert min(drawn) >= 0
    assert mean(drawn) == pytest.approx(1 / 20)
    assert pstdev(drawn) == pytest.approx(1 / 20 / burstiness**0.5, rel=0.08)


def test_at_infinite_burstiness_requests_come_like_a_clock() -> None:
    assert gaps(INF) == pytest.approx([1 / 20] * 4000)


def test_the_last_request_comes_at_the_same_time_whatever_was_drawn() -> None:
    drawn = [arrivals(7, rate=2.0, burstiness=1.0, seed=seed) for seed in (1, 2)]
    assert drawn[0] != drawn[1]
    assert [sent[-1] for sent in drawn] == [pytest.approx(3.5)] * 2
    assert drawn[0] == arrivals(7, rate=2.0, burstiness=1.0, seed=1)


@pytest.mark.parametrize("is_chat", [False, True])
def test_random_prompts_are_words_and_come_from_the_seed(is_chat: bool) -> None:
    def drawn(seed: int) -> list[Prompt]:
        return random_prompts(9, 40, {"top_p": 1}, is_chat=is_chat, seed=seed)

    texts = [one.messages[0]["content"] if one.messages else one.text for one in drawn(0)]
    assert {len(text.split()) for text in texts if text} == {40}
    assert len(set(texts)) == 9
    assert drawn(0) == drawn(0) != drawn(1)
    assert {(one.messages is not None, one.fields["top_p"]) for one in drawn(0)} == {(is_chat, 1)}


LINES = [
    {"turns": ["one", "two"], "category": "a"},
    {"prompt": "three", "category": "a", "max_tokens": 5, "temperature": 1.0},
    {"prompt_token_ids": [4, 5], "category": "b"},
]
CHAT_LINE = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}


def taken(
    path: Path,
    num: int | None = None,
    name: DatasetName = DatasetName.CUSTOM,
    is_chat: bool = False,
) -> list[Prompt]:
    return file_prompts(name, path, num, {"max_tokens": 9}, is_chat=is_chat)


def test_a_completion_gets_the_text_as_it_is(write: Write) -> None:
    one, three, ids = taken(write(*LINES))
    assert (one.text, three.text, ids.token_ids) == ("one", "three", (4, 5))
    assert one.fields == {"max_tokens": 9}
    assert three.fields == {"max_tokens": 5, "temperature": 1.0}


def test_a_chat_gets_messages(write: Write) -> None:
    one, other = taken(write(LINES[0], CHAT_LINE), is_chat=True)
    assert one.messages == [{"role": "user", "content": "one"}]
    assert other.messages == CHAT_LINE["messages"]


@pytest.mark.parametrize(
    ("line", "is_chat", "message"),
    [
        (LINES[2], True, "line 1: a chat takes no token ids"),
        (CHAT_LINE, False, "line 1: messages need --backend"),
    ],
)
def test_what_a_backend_cannot_carry_is_refused(
    write: Write, line: dict[str, Any], is_chat: bool, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        taken(write(line), is_chat=is_chat)


def test_a_file_is_taken_from_its_beginning_or_from_all_categories(write: Write) -> None:
    path = write(*LINES)
    first = taken(path, 2)
    spread = taken(path, 2, name=DatasetName.SPEC_BENCH)
    assert [prompt.text for prompt in first] == ["one", "three"]
    assert [prompt.text for prompt in spread] == ["one", None]
    again = taken(path, 7)
    assert again == [*taken(path)] * 2 + again[:1]
