"""An answer's text continues its prompt's text, whatever the tokenizer's decoder is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.ingress.echo import prompt_text
from deployments.text.detokenizer import (
    IncrementalDetokenizer,
    answer_detokenizer,
    answer_text,
    certain_text,
    num_unfinished,
)
from deployments.text.tokenizer import TextModel
from tests.deployments.text.tokenizers import KINDS, text_model

PARTS = st.sampled_from(
    ["The", " capital", " of", " France", " is", " Paris", " ", "  ", ".", "日", "🙂", "é", "\n"]
)
TEXTS = st.lists(PARTS, max_size=12).map("".join)
SPACED = [kind for kind in KINDS if kind not in ("word piece", "end of word")]


@pytest.fixture(scope="module", params=list(KINDS))
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return text_model(request.param, tmp_path_factory.mktemp("kind"))


@pytest.fixture(scope="module", params=SPACED)
def spaced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return text_model(request.param, tmp_path_factory.mktemp("spaced"), begins=True)


def shown(text: TextModel, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """The answer with special tokens."""
    detokenizer = answer_detokenizer(text, prompt, hidden=())
    return "".join(map(detokenizer.add, ids)) + detokenizer.flush()


@pytest.mark.parametrize("prompt", ["The capital of France is", "日", "a.\n"])
def test_an_answer_begins_with_its_space(spaced: TextModel, prompt: str) -> None:
    """A prompt's end is in the answer's text neither missing nor repeated."""
    ids = spaced.encode(prompt)
    answer = spaced.encode(f"{prompt} Paris.")[len(ids) :]
    assert answer_text(spaced, ids, answer) == " Paris."
    assert shown(spaced, ids, answer) == " Paris."


def test_an_answer_without_a_prompt_begins_a_text(spaced: TextModel) -> None:
    ids = spaced.encode_part("Paris is")
    assert answer_text(spaced, (), ids) == spaced.decode(ids) == "Paris is"
    assert answer_text(spaced, spaced.encode(""), ids) == "Paris is"


def test_prompt_and_answer_are_the_text_of_all_ids(text: TextModel) -> None:
    @settings(max_examples=60)
    @example("The capital of France is Paris.", 99)
    @example("日" * 12, 5)
    @given(TEXTS, st.integers(0, 99))
    def check(content: str, cut: int) -> None:
        ids = text.encode_part(content)
        prompt, answer = ids[: cut % (len(ids) + 1)], ids[cut % (len(ids) + 1) :]
        end = len(prompt) - num_unfinished(prompt, text.token_bytes)
        told = certain_text(text.decode, prompt, end) + answer_text(text, prompt, answer)
        assert told == text.decode(ids)
        assert prompt_text(text, prompt) + shown(text, prompt, answer) == told

    check()


def test_some_special_tokens_may_be_part_of_a_text(spaced: TextModel) -> None:
    start, end = spaced.encode_part("<|im_start|><|im_end|>")
    prompt = spaced.encode("The capital")
    words = spaced.encode("The capital of France")[len(prompt) :]
    for ids in ((start, *words, end), (*words, end, *words), (end, *words, start, end, *words)):
        some = answer_detokenizer(spaced, prompt, hidden={end})
        told = "".join(map(some.add, ids)) + some.flush()
        assert told == shown(spaced, prompt, ids).replace("<|im_end|>", "")
        assert told.replace("<|im_start|>", "") == answer_text(spaced, prompt, ids)
        assert " of France" in told


def test_special_tokens_are_no_part_of_a_text(spaced: TextModel) -> None:
    """Whether they end the prompt, are all of it, or come in the answer."""
    start, end = spaced.encode_part("<|im_start|><|im_end|>")
    question = spaced.encode_part("The capital")
    answer = spaced.encode_part("The capital Paris is")[len(question) :]
    turns = (start, *question, end, *([start, end] * 9), start)
    assert answer_text(spaced, turns, answer) == " Paris is"
    assert shown(spaced, turns, answer) == " Paris is"
    with_end = (*answer[:1], end, *answer[1:], end)
    assert answer_text(spaced, question, with_end) == " Paris is"
    assert shown(spaced, question, with_end).replace("<|im_end|>", "") == " Paris is"
    assert answer_text(spaced, (start, end), spaced.encode_part("Paris")) == "Paris"


@pytest.mark.parametrize("kind", ["llama 2", "byte level"])
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 6])
def test_an_answer_may_finish_the_prompts_last_character(
    kind: str, cut: int, tmp_path: Path
) -> None:
    text = text_model(kind, tmp_path)
    ids = text.encode_part("is日🙂.")
    place = len(text.encode_part("is")) + cut
    told = answer_text(text, ids[:place], ids[place:])
    assert told == {1: "日🙂.", 2: "日🙂.", 3: "🙂.", 4: "🙂.", 5: "🙂.", 6: "🙂."}[cut]
    unlike = text.encode_part("x.")[-1:]
    assert answer_text(text, ids[:place], unlike).endswith(".")


@pytest.mark.parametrize("kind", ["llama 2", "byte level"])
def test_bytes_that_are_no_character_neither_wait_for_ever_nor_spoil_others(
    kind: str, tmp_path: Path
) -> None:
    text = text_model(kind, tmp_path)
    byte = next(i for i in range(text.vocab_size) if text.token_bytes(i) == b"\x97")
    letters = text.encode_part("日is")
    detokenizer = answer_detokenizer(text, letters[:-2])
    told = [
        detokenizer.add(i) for i in (*letters[-2:], *[byte] * 100, *text.encode_part("x.")[-1:])
    ]
    assert "".join(told[:2]) == "is"
    assert set("".join(told[2:-1])) == {"\ufffd"}
    assert told[-1].endswith(".")
    longest_wait = max(map(len, "".join("x" if part else "." for part in told).split("x")))
    assert longest_wait <= 8
    assert "".join(told).count("\ufffd") == 100


def test_a_token_is_decoded_with_few_others(text: TextModel) -> None:
    """What a token costs does not grow with the answer."""
    sizes: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        sizes.append(len(ids))
        return text.decode(ids)

    ids = text.encode_part("The capital of France is Paris. " * 20)
    detokenizer = IncrementalDetokenizer(decode)
    told = "".join(map(detokenizer.add, ids)) + detokenizer.flush()
    assert told == text.decode(ids)
    assert max(sizes) <= 8
    assert len(sizes) <= 1.5 * len(ids)


def test_ids_without_text_do_not_pile_up() -> None:
    """An ID that the vocabulary leaves out is decoded to nothing."""
    sizes: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        sizes.append(len(ids))
        return "".join("x" for i in ids if i)

    detokenizer = IncrementalDetokenizer(decode)
    ids = [0] * 1000 + [1, 0, 0, 1]
    assert "".join(map(detokenizer.add, ids)) + detokenizer.flush() == "xx"
    assert max(sizes) <= 8
