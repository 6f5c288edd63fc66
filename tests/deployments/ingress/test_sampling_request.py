"""What a caller names becomes what the sampler gets, or a refusal that names it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers
from tokenizers.models import BPE

from deployments.ingress.generation_request import MAX_BAD_WORD_CHARS, resolve_sampling
from deployments.text.sampling_fields import SamplingFields
from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec
from specdec_core.sampling_params import SamplingParams
from tests.deployments.fake_text import fake_text_model

TEXT = fake_text_model()
BASE = SamplingParams(seed=5, max_tokens=100, temperature=0.5)


def resolved(text: TextModel = TEXT, **named: Any) -> SamplingParams:
    return resolve_sampling(named, text, BASE)


def text_of(*pieces: str, **settings: Any) -> TextModel:
    """A tokenizer whose longer pieces are merges of two letters."""
    vocab = {piece: place for place, piece in enumerate(pieces)}
    merges = [(piece[0], piece[1:]) for piece in pieces if len(piece) > 1]
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges))
    for name, value in settings.items():
        setattr(tokenizer, name, value)
    return replace(TEXT, backend=tokenizer)


def test_what_is_not_named_is_as_before() -> None:
    assert resolved() == BASE
    assert resolved(temperature=None, bad_words=None, logit_bias=None, logprobs=None) == BASE


def test_every_name_changes_what_it_names() -> None:
    named: dict[str, Any] = {
        "temperature": 0.25,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 0.1,
        "seed": 7,
        "presence_penalty": 1.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.25,
        "min_tokens": 2,
        "max_tokens": 9,
        "ignore_eos": True,
    }
    lists: dict[str, Any] = {"allowed_token_ids": [4, 2], "stop_token_ids": [9]}
    params = resolved(
        **named,
        **lists,
        logit_bias={"12": 2.0, "3": -100},
        bad_words=["AB"],
        bad_word_ids=[[1, 2], [3]],
        logprobs=4,
        prompt_logprobs=2,
    )
    assert params == SamplingParams(
        **named,
        allowed_token_ids=(4, 2),
        stop_token_ids=(9,),
        logit_bias=((3, -100.0), (12, 2.0)),
        bad_words=((17, 18), (1, 2), (3,)),
        num_logprobs=4,
        num_prompt_logprobs=2,
    )
    same = [f.name for f in fields(params) if getattr(params, f.name) == getattr(BASE, f.name)]
    assert same == ["grammar"], "which excludes two of the others"
    spec = GrammarSpec(GrammarKind.REGEX, "a")
    assert resolved(grammar=spec) == replace(BASE, grammar=spec)


def test_json_has_every_name_but_those_that_are_said_otherwise() -> None:
    said_otherwise = {"num_logprobs", "num_prompt_logprobs", "grammar"}
    names = {field.name for field in fields(SamplingParams)} - said_otherwise
    assert set(SamplingFields.model_fields) == names


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"logit_bias": {"50": 1}}, "logit_bias: token id 50 is not in 0..49"),
        ({"logit_bias": {"word": 1}}, "logit_bias: 'word' is not a token id"),
        ({"logit_bias": {"-1": 1}}, "logit_bias: '-1' is not a token id"),
        ({"logit_bias": {-1: 1}}, "logit_bias: '-1' is not a token id"),
        ({"logit_bias": {"01": 1}}, "logit_bias: '01' is not a token id"),
        ({"logit_bias": {"9" * 5000: 1}}, "is not a token id"),
        ({"logit_bias": {"3": 100.5}}, "-100.0..100.0, got 3: 100.5"),
        ({"logit_bias": {"3": float("nan")}}, "got 3: nan"),
        ({"allowed_token_ids": [1, 50]}, "allowed_token_ids: token id 50 is not in 0..49"),
        ({"stop_token_ids": [-2]}, "stop_token_ids: token id -2 is not in 0..49"),
        ({"bad_word_ids": [[1], [77]]}, "bad_word_ids: token id 77 is not in 0..49"),
        ({"bad_word_ids": [[]]}, "bad_words must be non-empty"),
        ({"bad_words": ["A", ""]}, "bad word is empty"),
        ({"bad_words": [" "]}, "bad word is empty"),
        ({"bad_words": ["A" * 6000] * 2}, f"12000 characters together, the limit is {10_000}"),
        ({"presence_penalty": 2.1}, "presence_penalty must be in -2..2, got 2.1"),
        ({"frequency_penalty": -3}, "frequency_penalty must be in -2..2, got -3"),
        ({"repetition_penalty": 0}, "repetition_penalty must be in 0.01..100, got 0"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty must be in 0.01..100, got 1e-40"),
        ({"allowed_token_ids": []}, "allowed_token_ids is empty"),
        ({"min_tokens": 101}, "min_tokens must be in 0..max_tokens=100, got 101"),
        ({"min_tokens": -1}, "got -1"),
        ({"logprobs": 21}, "logprobs must be in 0..20, got 21"),
        ({"logprobs": -1}, "logprobs must be in 0..20, got -1"),
    ],
)
def test_a_bad_value_is_refused_by_name(named: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        resolved(**named)
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 150


def test_the_limit_of_bad_words_is_inclusive() -> None:
    assert len(resolved(bad_words=["A" * MAX_BAD_WORD_CHARS]).bad_words[0]) == MAX_BAD_WORD_CHARS


def test_a_word_is_banned_at_the_start_and_behind_a_space() -> None:
    text = text_of("a", "b", " ", "ab", " a")
    assert resolved(text, bad_words=["a"]).bad_words == ((0,), (4,))
    assert resolved(text, bad_words=["  a", "b"]).bad_words == ((0,), (4,), (1,))


def test_forms_of_unequal_length_are_both_banned() -> None:
    text = text_of("a", "b", " ", " a", "c")
    assert resolved(text, bad_words=["ab"]).bad_words == ((0, 1), (3, 1))
    joined = text_of("a", "b", " ", "ab", " ab")
    assert resolved(joined, bad_words=["ab", "ba"]).bad_words == ((3,), (4,), (1, 0))


def test_a_space_of_its_own_adds_nothing() -> None:
    text = text_of("a", "b", "▁", normalizer=normalizers.Replace(" ", "▁"))
    assert resolved(text, bad_words=["ab"]).bad_words == ((0, 1),)


def test_a_top_k_of_minus_one_keeps_all() -> None:
    assert resolved(top_k=-1).top_k == 0


WIDE = text_of(*map(chr, range(0x4E00, 0x4E00 + 2000)))


@pytest.mark.parametrize(
    ("name", "limit", "value"),
    [
        ("stop_token_ids", 128, lambda count: [1] * count),
        ("logit_bias", 1024, lambda count: {str(i): 1.0 for i in range(count)}),
        ("allowed_token_ids", WIDE.vocab_size, lambda count: [1] * count),
    ],
)
def test_lists_have_so_many_entries_at_most(name: str, limit: int, value: Any) -> None:
    assert resolved(WIDE, **{name: value(limit)}) != BASE
    with pytest.raises(InvalidRequestError, match=f"{name} has {limit + 1} .* is {limit}"):
        resolved(WIDE, **{name: value(limit + 1)})


@pytest.mark.parametrize(
    ("seed", "told"),
    [(-2, 2**53 - 2), (-5, 2**53 - 5), (-(2**62), 0), (-(2**63), 0), (-(2**63) + 7, 7)],
)
def test_a_negative_seed_stands_for_one_that_every_json_reader_reads(seed: int, told: int) -> None:
    assert resolved(seed=seed).seed == told


def test_seed_minus_1_is_as_left_out() -> None:
    assert resolved(seed=-1) == BASE


@pytest.mark.parametrize("seed", [-(2**63) - 1, -(10**30), 2**63])
def test_a_seed_of_more_than_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"got {seed}") as refused:
        resolved(seed=seed)
    assert refused.value.param == "seed"
