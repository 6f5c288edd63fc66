"""A naive right-padded batch: the invariants and the equivalence check must both catch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod
from specdec_core.algorithms.padded.eqspec import Eqspec
from specdec_core.algorithms.padded.invariants import (
    check_pending,
    check_positions,
    check_rectangle,
)
from tests.equivalence.right_padded import PAD, RightPaddedKV
from tests.equivalence.test_fakes import VOCAB, plain, scheduler_config
from tests.fakes import NoisyCopy, PaddedTokenList, TokenListModel


def right_padded() -> tuple[PaddedTokenList, PaddedTokenList]:
    """A target that does it wrong, a draft that does it right: what comes out is the target's."""
    target = TokenListModel(vocab_size=VOCAB)
    return PaddedTokenList(target, RightPaddedKV), PaddedTokenList(NoisyCopy(target, 3))


def decode_right_padded(config: SchedulerConfig, asked: Sequence[Request]) -> dict[str, list[int]]:
    naive = Eqspec(*right_padded(), config=config)
    for request in asked:
        naive.add(request)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in asked}
    while naive.has_work:
        for event in naive.step():
            tokens[event.request_id] += event.token_ids
    return tokens


def unequal_requests() -> list[Request]:
    """Without the pad id in them: padding alone is what goes wrong."""
    params = SamplingParams(max_tokens=40, temperature=0.0, logit_bias=((PAD, -100.0),))
    prompts = [(3 + i,) * (3 + 4 * i) for i in range(4)]
    return [
        Request(request_id=str(i), prompt_token_ids=prompt, params=params)
        for i, prompt in enumerate(prompts)
    ]


def test_the_equivalence_check_catches_a_right_padded_batch() -> None:
    asked = unequal_requests()
    config = scheduler_config(SpecMethod.DRAFT_MODEL, 4, 4)
    tokens = decode_right_padded(config, asked)
    expected = plain(asked)
    num_equal = sum(tuple(tokens[name]) == ids for name, (ids, _) in expected.items())
    assert num_equal < len(asked)


def test_the_invariants_catch_a_right_padded_batch() -> None:
    config = replace(scheduler_config(SpecMethod.DRAFT_MODEL, 4, 4), check_invariants=True)
    with pytest.raises(AssertionError, match=r"I[123]:"):
        decode_right_padded(config, unequal_requests())


def test_each_invariant_alone_catches_a_right_padded_batch() -> None:
    model, _ = right_padded()
    kv = model.new_batch([3, 5])
    for row, count in enumerate((2, 4)):
        kv.extend({row: count})
        kv._ids()[row, kv.starts[row] : kv.ends[row]] = 7
    check_rectangle(kv, [3, 5])
    check_positions(kv)
    check_pending(kv, [3, 5])
    kv.extend({0: 1, 1: 4})
    kv._ids()[:, 4:8] = 7
    kv.realign([0, 1], [4, 9])
    with pytest.raises(AssertionError, match="I1"):
        check_rectangle(kv, [4, 9])
    with pytest.raises(AssertionError, match="I2"):
        check_positions(kv)
    with pytest.raises(AssertionError, match="I3"):
        check_pending(kv, [4, 9])


def test_a_right_padded_batch_of_one_row_is_right() -> None:
    """So the naive batch is a fair one: it fails where rows are unequal, not everywhere."""
    asked = unequal_requests()[:1]
    tokens = decode_right_padded(scheduler_config(SpecMethod.DRAFT_MODEL, 4, 1), asked)
    assert tuple(tokens["0"]) == plain(asked)["0"][0]
    assert PAD not in tokens["0"]
