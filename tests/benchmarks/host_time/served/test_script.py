"""Processes that share no memory agree on what comes next, and guess as well as they are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.host_time.served.lookup import scripted_lookups
from benchmarks.host_time.served.script import FIRST_TEXT_ID, HEAD, TokenScript
from specdec_core.config import SpeculationConfig

_VOCAB = 512
_PROMPT = list(range(300, 340))


def _answer(script: TokenScript, prompt: list[int], count: int) -> list[int]:
    number = script.begin(prompt)
    return [script.following(number, len(prompt) + i, 1)[0] for i in range(count)]


def test_two_scripts_of_one_prompt_agree() -> None:
    one, other = TokenScript(_VOCAB), TokenScript(_VOCAB)
    assert _answer(one, _PROMPT, 600) == _answer(other, _PROMPT[:HEAD] + [5] * 32, 600)


def test_prompts_that_begin_differently_have_other_answers() -> None:
    script = TokenScript(_VOCAB)
    assert _answer(script, _PROMPT, 50) != _answer(script, [299, *_PROMPT[1:]], 50)


def test_tokens_of_one_call_are_those_of_single_ones() -> None:
    script = TokenScript(_VOCAB)
    number = script.begin(_PROMPT)
    assert list(script.following(number, 44, 5)) == [
        script.following(number, length, 1)[0] for length in range(40, 45)
    ]


def test_every_token_is_text() -> None:
    answer = _answer(TokenScript(_VOCAB, lambda: 0.0), _PROMPT, 1000)
    assert FIRST_TEXT_ID <= min(answer) <= max(answer) < _VOCAB


@pytest.mark.parametrize("acceptance", [0.0, 0.7, 1.0])
def test_guesses_are_right_as_often_as_is_said(acceptance: float) -> None:
    count = 4000
    right = _answer(TokenScript(_VOCAB), _PROMPT, count)
    guessed = _answer(TokenScript(_VOCAB, lambda: acceptance), _PROMPT, count)
    share = sum(a == b for a, b in zip(right, guessed, strict=True)) / count
    assert share == pytest.approx(acceptance, abs=0.03)


def test_a_lookup_proposes_what_follows_its_ids() -> None:
    script = TokenScript(_VOCAB)
    ids = [*_PROMPT, *_answer(script, _PROMPT, 10)]
    drafter = scripted_lookups(TokenScript(_VOCAB))(SpeculationConfig())
    row: Any = SimpleNamespace(ids=ids)
    index = drafter.begin(row)
    assert list(index.propose(4)) == _answer(script, _PROMPT, 14)[10:]
    assert index.match_len == drafter.lengths.lookup_max
