"""Pieces: text, offsets and log-probabilities in step, wherever rounds end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.ingress.generation_request import OutputOptions
from deployments.ingress.output import Output, OutputChunk, joined
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, TokenEvent
from specdec_core.sampling_params import SamplingParams
from tests.service.tiny_folder import save_tiny_llama


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(str(save_tiny_llama(tmp_path_factory.mktemp("tiny"))))


def entry(place: int) -> TokenLogprobs:
    return TokenLogprobs(-float(place), ((place, -0.5),))


def events(
    ids: tuple[int, ...], cuts: list[int], reason: FinishReason = FinishReason.LENGTH
) -> Iterator[TokenEvent]:
    """`ids` in rounds that end at `cuts`."""
    bounds = [0, *sorted({cut % (len(ids) + 1) for cut in cuts} - {0, len(ids)}), len(ids)]
    for start, stop in pairwise(bounds):
        yield TokenEvent(
            request_id="a",
            index=start,
            token_ids=ids[start:stop],
            logprobs=tuple(entry(place) for place in range(start, stop)),
            finish_reason=reason if stop == len(ids) else None,
        )


def pieces_of(
    text: TextModel,
    parts: Iterator[TokenEvent],
    *stop: str,
    view: OutputOptions | None = None,
    **params: Any,
) -> list[OutputChunk]:
    output = Output(text, SamplingParams(max_tokens=99, **params), stop, view or OutputOptions())
    pieces: list[OutputChunk] = []
    for part in parts:
        pieces.append(output.take(part))
        if pieces[-1].finish_reason is not None:
            break
    return pieces


def first_stop(text: TextModel, ids: tuple[int, ...], stop: list[str]) -> int | None:
    """Where the first one begins that some token completes: of "b" and "abc" in "abc" it is "b",
    though the other begins earlier."""
    for count in range(1, len(ids) + 1):
        seen = text.decode(ids[:count])
        if hits := [seen.find(word) for word in stop if word in seen]:
            return min(hits)
    return None


@settings(max_examples=80)
@example("a日a", [], ["日", "a日a"], 0)
@given(
    st.text(st.sampled_from("ab é日🙂"), min_size=1, max_size=20),
    st.lists(st.integers(0, 60), max_size=6),
    st.lists(st.text("ab 日", min_size=1, max_size=3), max_size=2),
    st.integers(0, 9),
)
def test_where_rounds_end_changes_nothing(
    text: TextModel, content: str, cuts: list[int], stop: list[str], min_tokens: int
) -> None:
    ids = text.encode_part(content)
    pieces = pieces_of(text, events(ids, cuts), *stop, min_tokens=min_tokens)
    whole = joined(pieces)
    assert whole == joined(pieces_of(text, events(ids, []), *stop, min_tokens=min_tokens))
    count = len(whole.token_ids)
    assert whole.token_ids == ids[:count]
    assert whole.logprobs == tuple(entry(place) for place in range(count))
    assert len(whole.text_offsets) == count
    for piece in pieces:
        assert len(piece.token_ids) == len(piece.logprobs) == len(piece.text_offsets)
    if min_tokens == 0:
        end = first_stop(text, ids, stop)
        assert whole.text == content[:end]
        is_cut = end is not None
        assert whole.finish_reason is (FinishReason.STOP if is_cut else FinishReason.LENGTH)
    assert count > min_tokens or whole.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("min_tokens", "shown"),
    [(0, "x"), (2, "x"), (3, "xaby"), (4, "xaby"), (5, "xaby"), (6, "xabyabz")],
)
def test_a_stop_string_that_ends_before_min_tokens_is_text(
    text: TextModel, min_tokens: int, shown: str
) -> None:
    """One letter a token; 'ab' ends at the third and at the sixth."""
    ids = tuple(i for letter in "xabyabz" for i in text.encode_part(letter))
    whole = joined(pieces_of(text, events(ids, [2, 5]), "ab", "aby!", min_tokens=min_tokens))
    assert whole.text == shown
    assert whole.finish_reason is (FinishReason.LENGTH if min_tokens == 6 else FinishReason.STOP)


@given(st.text(st.sampled_from("abc é日🙂"), min_size=1, max_size=20))
def test_offsets_are_where_tokens_begin(text: TextModel, content: str) -> None:
    ids = text.encode_part(content)
    whole = joined(pieces_of(text, events(ids, [])))
    for place, offset in enumerate(whole.text_offsets):
        before = b"".join(map(text.token_bytes, ids[:place]))
        whole_characters = before.decode(errors="ignore")
        assert offset <= len(whole_characters)
        if whole_characters.encode() == before:
            assert offset == len(whole_characters)


def test_the_token_that_ends_the_output_is_told_but_not_shown(text: TextModel) -> None:
    ids = (*text.encode_part("ab"), 2)
    whole = joined(pieces_of(text, events(ids, [1], FinishReason.STOP), stop_token_ids=(2,)))
    assert (whole.token_ids, whole.text, whole.stop_reason) == (ids, "ab", 2)
    assert whole.text_offsets[-1] == 2
    assert len(whole.logprobs) == len(ids)


def test_a_stop_string_of_a_character_that_was_never_finished(text: TextModel) -> None:
    letter = text.backend.get_vocab()["ð"]
    (piece,) = pieces_of(text, events((letter,), []), "\ufffd")
    assert (piece.text, piece.finish_reason) == ("", FinishReason.STOP)
    assert piece.stop_reason == "\ufffd"


@pytest.mark.parametrize("cuts", [[], [1], [2, 5], [1, 2, 3, 4, 5, 6]])
def test_the_stop_string_is_shown_where_it_is_asked_for(text: TextModel, cuts: list[int]) -> None:
    ids = text.encode_part("one two three")
    for shows in (False, True):
        view = OutputOptions(includes_stop=shows)
        whole = joined(pieces_of(text, events(ids, cuts), "two", view=view))
        assert whole.text == ("one two" if shows else "one ")
        assert whole.stop_reason == "two"


def test_special_tokens_are_shown_where_they_are_asked_for(text: TextModel) -> None:
    special = text.encode_part("<|end|>")
    assert len(special) == 1
    ids = (*text.encode_part("a"), *special, *text.encode_part("b"))
    assert joined(pieces_of(text, events(ids, [1]))).text == "ab"
    shown = joined(pieces_of(text, events(ids, [1]), view=OutputOptions(shows_special_tokens=True)))
    assert shown.text == "a<|end|>b"


def test_the_stop_id_is_shown_only_with_both(text: TextModel) -> None:
    ids = (*text.encode_part("a"), *text.encode_part("<|end|>"))
    texts = {
        (special, stop): joined(
            pieces_of(
                text,
                events(ids, [], FinishReason.STOP),
                view=OutputOptions(shows_special_tokens=special, includes_stop=stop),
            )
        ).text
        for special in (False, True)
        for stop in (False, True)
    }
    assert texts.pop((True, True)) == "a<|end|>"
    assert set(texts.values()) == {"a"}


def spelled(text: TextModel, content: str) -> tuple[int, ...]:
    """One token per letter, and one per special token."""
    pieces = re.findall(r"<\|end\|>|<\|start\|>|.", content, re.DOTALL)
    return tuple(i for piece in pieces for i in text.encode_part(piece))


STOPS_WITH_SPECIAL_TOKENS = [
    (["<|start|>"], "ab<|start|>cd", "ab", "<|start|>"),
    (["never", "<|start|>"], "<|start|>ab", "", "<|start|>"),
    (["b<|start|>"], "ab<|start|>cd", "a", "b<|start|>"),
    (["\n<|start|>user"], "ab\n<|start|>users", "ab", "\n<|start|>user"),
    (["\n<|start|>user"], "ab\n<|start|>assistant", "ab\nassistant", None),
    (["<|end|>\n<|start|>"], "ab<|end|>\n<|start|>c", "ab", "<|end|>\n<|start|>"),
    (["<|end|>\n<|start|>"], "ab<|end|>\n<|end|>c", "ab\nc", None),
    (["<|start|><|start|>x"], "a<|start|><|start|><|start|>x", "a", "<|start|><|start|>x"),
    (["|>c", "d"], "ab<|start|>cd", "ab", "|>c"),
    (["art"], "ab<|start|>cd", "ab", "art"),
    (["bc"], "ab<|start|>cd", "abcd", None),
    (["🙂<|end|>"], "a🙂<|end|>b", "a", "🙂<|end|>"),
]


@pytest.mark.parametrize(("stop", "content", "shown", "found"), STOPS_WITH_SPECIAL_TOKENS)
@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 5]])
def test_stop_strings_see_special_tokens(
    text: TextModel, stop: list[str], content: str, shown: str, found: str | None, cuts: list[int]
) -> None:
    """Special tokens themselves are shown only where that is asked for."""
    ids = spelled(text, content)
    for includes in (False, True):
        view = OutputOptions(includes_stop=includes)
        whole = joined(pieces_of(text, events(ids, cuts), *stop, view=view))
        assert (whole.text, whole.stop_reason) == (shown + (found or "") * includes, found)
        view = OutputOptions(includes_stop=includes, shows_special_tokens=True)
        whole = joined(pieces_of(text, events(ids, cuts), *stop, view=view))
        place = content.find(found) if found else len(content)
        assert whole.text == content[:place] + (found or "") * includes
        assert whole.stop_reason == found


@pytest.mark.parametrize(("min_tokens", "shown"), [(1, "a"), (2, "abc"), (4, "abc"), (9, "abcd")])
def test_a_special_token_before_min_tokens_ends_nothing(
    text: TextModel, min_tokens: int, shown: str
) -> None:
    ids = spelled(text, "a<|start|>bc<|start|>d")
    whole = joined(pieces_of(text, events(ids, [3]), "<|start|>", min_tokens=min_tokens))
    assert whole.text == shown


@given(
    st.lists(st.sampled_from(["<|start|>", "<|end|>", "a", "b", "日"]), max_size=12),
    st.lists(st.integers(0, 60), max_size=6),
    st.lists(
        st.sampled_from(["<|start|>", "<|end|>a", "a<|", "b<|end|><|end|>", "日a"]), max_size=3
    ),
)
def test_hidden_tokens_change_only_what_is_shown(
    text: TextModel, parts: list[str], cuts: list[int], stop: list[str]
) -> None:
    ids = spelled(text, "".join(parts))
    hiding = joined(pieces_of(text, events(ids, cuts), *stop))
    view = OutputOptions(shows_special_tokens=True)
    showing = joined(pieces_of(text, events(ids, cuts), *stop, view=view))
    assert (hiding.token_ids, hiding.stop_reason) == (showing.token_ids, showing.stop_reason)
    assert hiding.text == showing.text.replace("<|start|>", "").replace("<|end|>", "")
    ends = {i: name for i, name in text.hidden_tokens.items() if name == "<|end|>"}
    some = joined(pieces_of(text, events(ids, cuts), *stop, view=OutputOptions(hidden_tokens=ends)))
    assert (some.token_ids, some.stop_reason) == (showing.token_ids, showing.stop_reason)
    assert some.text == showing.text.replace("<|end|>", "")
