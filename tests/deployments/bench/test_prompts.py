"""What a load sends and when: arrivals and prompts are functions of flags and seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pytest

from deployments.cli.bench.names import DatasetName, Vocabulary
from deployments.cli.bench.prompts import Prompt, PromptForm, file_prompts, random_prompts
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


def test_random_ids_come_from_the_range_and_the_seed() -> None:
    def drawn(seed: int) -> list[Prompt]:
        vocabulary = Vocabulary(5, 8)
        return random_prompts(9, 40, vocabulary, PromptForm.COMPLETION, {}, seed=seed)

    ids = [prompt.token_ids or () for prompt in drawn(0)]
    assert {len(own) for own in ids} == {40}
    assert {i for own in ids for i in own} == {5, 6, 7, 8}
    assert len(set(ids)) == 9
    assert drawn(0) == drawn(0) != drawn(1)


def test_a_random_chat_has_words() -> None:
    (prompt,) = random_prompts(1, 12, Vocabulary(0, 1), PromptForm.CHAT, {"top_p": 1}, seed=3)
    assert prompt.messages is not None
    (message,) = prompt.messages
    assert len(message["content"].split()) == 12
    assert prompt.sampling == {"top_p": 1}


LINES = [
    {"turns": ["one", "two"], "category": "a"},
    {"prompt": "three", "category": "a", "max_tokens": 5, "temperature": 1.0},
    {"prompt_token_ids": [4, 5], "category": "b"},
]
CHAT_LINE = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}


def taken(path: Path, form: PromptForm, num: int | None = None, **flags: Any) -> list[Prompt]:
    name = flags.pop("name", DatasetName.CUSTOM)
    return file_prompts(name, path, num, form, {"max_tokens": 9}, **flags)


def test_a_completion_gets_the_text_as_it_is(write: Write) -> None:
    one, three, ids = taken(write(*LINES), PromptForm.COMPLETION)
    assert (one.text, three.text, ids.token_ids) == ("one", "three", (4, 5))
    assert one.sampling == {"max_tokens": 9}
    assert three.sampling == {"max_tokens": 5, "temperature": 1.0}


def test_a_chat_gets_messages(write: Write) -> None:
    one, other = taken(write(LINES[0], CHAT_LINE), PromptForm.CHAT)
    assert one.messages == [{"role": "user", "content": "one"}]
    assert other.messages == CHAT_LINE["messages"]


@pytest.mark.parametrize("is_raw", [False, True])
def test_grpc_chats_unless_prompts_are_raw(write: Write, is_raw: bool) -> None:
    one, three, ids = taken(write(*LINES), PromptForm.ANY, is_raw=is_raw)
    assert (one.text is None, one.messages is None) == (not is_raw, is_raw)
    assert (three.text == "three", ids.token_ids) == (is_raw, (4, 5))


@pytest.mark.parametrize(
    ("line", "form", "message"),
    [
        (LINES[2], PromptForm.CHAT, "line 1: a chat takes no token ids"),
        (CHAT_LINE, PromptForm.COMPLETION, "line 1: messages need a chat"),
    ],
)
def test_what_a_backend_cannot_carry_is_refused(
    write: Write, line: dict[str, Any], form: PromptForm, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        taken(write(line), form)


def test_a_file_is_taken_from_its_beginning_or_from_all_categories(write: Write) -> None:
    path = write(*LINES)
    first = taken(path, PromptForm.COMPLETION, 2)
    spread = taken(path, PromptForm.COMPLETION, 2, name=DatasetName.SPEC_BENCH)
    assert [prompt.text for prompt in first] == ["one", "three"]
    assert [prompt.text for prompt in spread] == ["one", None]
    again = taken(path, PromptForm.COMPLETION, 7)
    assert again == [*taken(path, PromptForm.COMPLETION)] * 2 + again[:1]
