"""Special tokens that a reader needs in the text, for every format."""

from __future__ import annotations

import re

import pytest

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.reading import Answers
from deployments.text.answers.reasoning_formats import REASONING_FORMATS

TOKEN = re.compile(r"<[^<>\s{}]+>|\[/?[A-Z_]+\]")
OTHERS = ("<|im_start|>", "<|im_end|>", "<|start_of_role|>", "<pad>", "[INST]", "<｜User｜>")
FORMATS = {
    **{f"calls {name}": AnswerFormat(calls=one) for name, one in CALL_FORMATS.items()},
    **{f"reasoning {name}": AnswerFormat(reasoning=r) for name, r in REASONING_FORMATS.items()},
}


@pytest.mark.parametrize("name", FORMATS)
def test_marks_are_shown_and_other_tokens_stay_hidden(name: str) -> None:
    written = " ".join(FORMATS[name].written_marks)
    tokens = dict(enumerate([*dict.fromkeys(TOKEN.findall(written)), *OTHERS]))
    shown = Answers(FORMATS[name]).shown_tokens(tokens)
    assert {text for i, text in tokens.items() if i not in shown} == set(OTHERS)


def test_tokens_of_a_checkpoints_own_template_are_shown() -> None:
    field = {"open_pattern": r"<\|thought\|>", "close": "<|answer|>"}
    own = {"start_anchor": "<|bot|>", "fields": {"thinking": field}}
    tokens = dict(enumerate(["<|thought|>", "<|answer|>", "<|bot|>"]))
    assert Answers(AnswerFormat(own_template=own)).shown_tokens(tokens) == {0, 1}
