"""The end of a prompt: as few IDs as show where the answer begins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.reading import Answers, Begun, prompt_end
from deployments.text.answers.reasoning_formats import REASONING_FORMATS

ANSWERS = Answers(AnswerFormat(reasoning=REASONING_FORMATS["qwen3"]))
BEGINS = "<|im_start|>assistant\n"


class Letters:
    """A letter is an ID. Notes how many IDs were decoded."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def decode(self, ids: Sequence[int]) -> str:
        self.counts.append(len(ids))
        return "".join(map(chr, ids))


@pytest.mark.parametrize(
    ("behind", "counts", "is_found"),
    [
        ("", [64], True),
        ("<think>\n", [64], True),
        ("x" * 60, [64, 1024], True),
        ("x" * 3_000, [64, 1024, 4096], True),
        ("x" * 5_000, [64, 1024, 4096], False),
    ],
)
def test_windows_grow_until_the_answer_begins(
    behind: str, counts: list[int], is_found: bool
) -> None:
    letters = Letters()
    prompt = "y" * 9_000 + BEGINS + behind
    end = prompt_end(ANSWERS, letters.decode, [ord(letter) for letter in prompt])
    assert letters.counts == counts
    assert prompt.endswith(end)
    assert end.endswith(BEGINS + behind) is is_found


def test_a_prompt_without_a_beginning_has_begun_nothing() -> None:
    letters = Letters()
    end = prompt_end(ANSWERS, letters.decode, [ord(letter) for letter in "<think>no chat"])
    assert letters.counts == [14]
    assert ANSWERS.reader(end).begun is Begun.NOTHING
