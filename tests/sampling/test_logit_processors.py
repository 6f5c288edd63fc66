"""Bans, bias and penalties equal the slow reference at every position of a proposal."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specdec_core.errors import InvalidRequestError
from specdec_core.sampling import logit_processors, sampler
from specdec_core.sampling.logit_processors import (
    LOGIT_PROCESSORS,
    LogitProcessor,
    SequenceRows,
    process,
)
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling_params import (
    SAMPLING_FIELDS,
    Effect,
    SampleRow,
    SamplingParams,
    SamplingRules,
)
from tests.sampling import reference

pytestmark = pytest.mark.usefixtures("decider")

VOCAB = 12
ids = st.integers(0, VOCAB - 1)
any_ids = st.integers(0, VOCAB + 3)
words = st.lists(any_ids, min_size=1, max_size=3).map(tuple)


@st.composite
def mixes(draw: st.DrawFn) -> SamplingRules:
    """Any mix of processors; ids beyond the vocabulary are named too."""
    bias = draw(st.dictionaries(any_ids, st.sampled_from([-100.0, -1.5, 0.3, 100.0]), max_size=3))
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.7, 1.3])),
        seed=draw(st.integers(0, 99)),
        top_p=draw(st.sampled_from([1.0, 0.8])),
        top_k=draw(st.sampled_from([0, 4])),
        presence_penalty=draw(st.sampled_from([0.0, 0.7, -1.1])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.3, -0.4])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.7])),
        logit_bias=tuple(bias.items()),
        min_tokens=draw(st.integers(0, 6)),
        allowed_token_ids=tuple(draw(st.lists(any_ids, max_size=5))),
        bad_words=tuple(draw(st.lists(words, max_size=4))),
        max_tokens=20,
    )
    stop_ids = draw(st.frozensets(any_ids, max_size=3))
    return SamplingRules(params, draw(st.integers(1, 5)), stop_ids)


@st.composite
def turns(draw: st.DrawFn) -> list[SampleRow]:
    """The rows of one sequence's proposal: they share rules and history."""
    rules = draw(mixes())
    num_output = draw(st.integers(0, 6))
    num_drafted = draw(st.integers(0, 4))
    length = rules.prompt_len + num_output + num_drafted
    history = tuple(draw(st.lists(ids, min_size=length, max_size=length)))
    first = rules.prompt_len + num_output
    return [SampleRow(rules, first + j, history) for j in range(num_drafted + 1)]


passes = st.lists(turns(), min_size=1, max_size=4).map(lambda all_: [r for t in all_ for r in t])


def logits_of(num_rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(num_rows, VOCAB + 2, generator=generator)).bfloat16().float()


@settings(max_examples=100)
@given(passes, st.integers(0, 99))
def test_a_pass_equals_the_reference_row_by_row(rows: list[SampleRow], seed: int) -> None:
    logits = logits_of(len(rows), seed)
    before = logits.clone()
    z = process(logits[:, :VOCAB], rows)
    assert torch.equal(logits, before), "the caller's logits are not ours to change"
    expected = [
        reference.process_one(values[:VOCAB], row.rules, row.history[: row.position])
        for values, row in zip(logits.tolist(), rows, strict=True)
    ]
    assert z.tolist() == expected
    chosen = [
        reference.choose_one(values, row.rules.params, row.position)
        for values, row in zip(expected, rows, strict=True)
    ]
    assert choose(logits, rows, VOCAB) == chosen


@settings(max_examples=40)
@given(passes)
def test_a_row_does_not_depend_on_the_rows_around_it(rows: list[SampleRow]) -> None:
    logits = logits_of(len(rows))[:, :VOCAB]
    together = process(logits, rows)
    for i, row in enumerate(rows):
        alone = row._replace(history=tuple(row.history[: row.position]))
        assert torch.equal(process(logits[i : i + 1], [alone])[0], together[i])


def test_rows_without_processors_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = SamplingRules(
        SamplingParams(temperature=0.8, top_p=0.9, max_tokens=5), 1, frozenset({2})
    )
    monkeypatch.setattr(sampler, "process", None)
    choose(logits_of(3), [SampleRow(rules, i) for i in range(3)], VOCAB)


def only(rules: SamplingRules, history: tuple[int, ...]) -> list[float]:
    """The processed logits behind `history`, from logits that are all 1."""
    row = SampleRow(rules, len(history), history)
    z: list[float] = process(torch.ones(1, VOCAB), [row])[0].tolist()
    return z


def rules(
    prompt_len: int = 2, stop_ids: frozenset[int] = frozenset(), **fields: object
) -> SamplingRules:
    params = replace(SamplingParams(max_tokens=50), **fields)  # type: ignore[arg-type]
    return SamplingRules(params, prompt_len, stop_ids)


def test_repetition_counts_the_prompt_presence_and_frequency_do_not() -> None:
    history = (3, 3, 4, 4)
    assert only(rules(repetition_penalty=2.0), history)[3:5] == [0.5, 0.5]
    assert only(rules(presence_penalty=0.5), history)[3:5] == [1.0, 0.5]
    assert only(rules(frequency_penalty=0.25), history)[3:5] == [1.0, 0.5]


def test_a_penalty_of_one_is_one() -> None:
    """1 is neutral for repetition alone."""
    history = (3, 3, 4, 4)
    assert only(rules(presence_penalty=1.0), history)[3:6] == [1.0, 0.0, 1.0]
    assert only(rules(frequency_penalty=1.0), history)[3:6] == [1.0, -1.0, 1.0]


def test_ids_beyond_the_vocabulary_change_nothing() -> None:
    beyond = VOCAB
    assert only(rules(logit_bias=((beyond, 3.0), (2, 3.0))), (1, 2)) == [
        4.0 if v == 2 else 1.0 for v in range(VOCAB)
    ]
    assert only(rules(logit_bias=((beyond, 3.0),)), (1, 2)) == [1.0] * VOCAB
    assert only(rules(bad_words=((beyond,),)), (1, 2)) == [1.0] * VOCAB
    assert only(rules(allowed_token_ids=(beyond,)), (1, 2)) == [-math.inf] * VOCAB


def test_sequences_that_share_their_rules_have_histories_of_their_own() -> None:
    shared = rules(prompt_len=0, presence_penalty=1.0)
    rows = [SampleRow(shared, 1, (v,)) for v in (3, 4, 5)]
    assert process(torch.ones(3, VOCAB), rows)[:, 3:6].tolist() == [
        [0.0, 1.0, 1.0],
        [1.0, 0.0, 1.0],
        [1.0, 1.0, 0.0],
    ]


def test_everything_is_made_where_the_logits_are() -> None:
    """The meta device stands for an accelerator."""
    mixed = rules(
        min_tokens=9,
        stop_ids=frozenset({5}),
        logit_bias=((3, 1.0),),
        allowed_token_ids=(1, 2, 3),
        bad_words=((1,),),
        presence_penalty=1.0,
    )
    row = SampleRow(mixed, 4, (3, 3, 4, 4))
    assert process(torch.ones(1, VOCAB, device="meta"), [row]).is_meta


def test_before_any_id_there_is_nothing_to_penalise() -> None:
    row = SampleRow(rules(presence_penalty=1.0, repetition_penalty=2.0), 0)
    assert torch.equal(process(torch.ones(1, VOCAB), [row]), torch.ones(1, VOCAB))


def test_repetition_multiplies_negative_logits() -> None:
    row = SampleRow(rules(repetition_penalty=2.0), 2, (3, 4))
    assert process(torch.full((1, VOCAB), -1.0), [row])[0, 3:6].tolist() == [-2.0, -2.0, -1.0]


def test_the_bias_is_added_before_the_penalties() -> None:
    z = only(rules(logit_bias=((3, 3.0),), repetition_penalty=2.0), (3, 4))
    assert z[3] == 2.0


def test_bias_does_not_lift_a_ban() -> None:
    bias = ((5, 100.0),)
    assert only(rules(logit_bias=bias, bad_words=((5,),)), (1, 2))[5] == -math.inf
    assert only(rules(logit_bias=bias, allowed_token_ids=(1,)), (1, 2))[5] == -math.inf
    early = rules(logit_bias=bias, min_tokens=1, stop_ids=frozenset({5}))
    assert only(early, (1, 2))[5] == -math.inf


def test_min_tokens_counts_emitted_tokens_alone() -> None:
    asked = rules(min_tokens=2, stop_ids=frozenset({5, 7}))
    for history, banned in (((5, 7), {5, 7}), ((5, 7, 1), {5, 7}), ((5, 7, 1, 1), set())):
        z = only(asked, history)
        assert {v for v in range(VOCAB) if z[v] == -math.inf} == banned


def test_a_bad_word_may_not_begin_in_the_prompt() -> None:
    """As in vLLM: only what was emitted is compared."""
    asked = rules(bad_words=((1, 2, 3),))
    assert only(asked, (1, 2))[3] == 1.0
    assert only(asked, (0, 1, 2))[3] == 1.0
    assert only(asked, (0, 0, 1, 2))[3] == -math.inf
    assert only(asked, (0, 0, 1, 2, 2))[3] == 1.0


def test_a_row_whose_every_id_is_banned_fails_alone() -> None:
    banned = rules(allowed_token_ids=(3,), bad_words=((3,),))
    fine = rules(temperature=0.0)
    rows = [SampleRow(each, 2, (1, 2)) for each in (fine, banned, fine)]
    logits = logits_of(3)[:, :VOCAB]
    best = logits.argmax(dim=1).tolist()
    assert choose(logits, rows, VOCAB) == [best[0], NO_CHOICE, best[2]]


def test_rules_that_look_back_need_the_ids() -> None:
    with pytest.raises(AssertionError, match="ids before"):
        process(torch.ones(1, VOCAB), [SampleRow(rules(presence_penalty=1.0), 3, (1, 2))])


def test_an_id_is_biased_once() -> None:
    with pytest.raises(InvalidRequestError, match="twice"):
        SamplingParams(logit_bias=((3, 1.0), (3, 2.0)))


def test_each_parameter_that_changes_logits_has_one_processor() -> None:
    """A name in only one of the lists is a parameter without effect, or an undeclared effect."""
    named = [name for processor in LOGIT_PROCESSORS for name in processor.fields]
    declared = [field.name for field in SAMPLING_FIELDS if field.effect is not Effect.NONE]
    assert sorted(named) == sorted(declared)


def drop_greatest(z_GV: Tensor, rows: SequenceRows) -> None:
    """A filter that keeps no prefix of the stable order."""
    z_GV.scatter_(1, z_GV.argmax(dim=-1, keepdim=True), -math.inf)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0},
        {"temperature": 0.9},
        {"temperature": 0.9, "top_k": 3},
        {"temperature": 1.3, "top_p": 0.7, "min_p": 0.01},
    ],
    ids=str,
)
def test_a_new_filter_of_any_form_is_one_entry(
    sampling: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = logits_of(40)[:, :VOCAB]
    without = logits.clone()
    drop_greatest(without, SequenceRows(rules(), (), 0, []))
    plain = rules(**sampling)
    expected = choose(without, [SampleRow(plain, i) for i in range(40)], VOCAB)
    entry = LogitProcessor(("min_tokens",), drop_greatest)
    monkeypatch.setattr(logit_processors, "LOGIT_PROCESSORS", (*LOGIT_PROCESSORS, entry))
    filtered = rules(**sampling, min_tokens=1)
    assert choose(logits, [SampleRow(filtered, i) for i in range(40)], VOCAB) == expected
    assert choose(logits, [SampleRow(plain, i) for i in range(40)], VOCAB) != expected
