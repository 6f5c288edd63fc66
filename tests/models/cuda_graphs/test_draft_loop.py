"""K draft passes without the host between them: the proposals of a draft asked token by token."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from specdec_core.errors import OutOfBlocksError
from specdec_core.model import ForwardInput, score
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.worker.model_runner import ModelRunner
from specdec_core.worker.round import RoundRow, propose, round_row
from tests.models.cuda_graphs.models import fixed, ragged
from tests.models.cuda_graphs.recorders import JudgingRecorder, ScarceRecorder, WarmingRecorder
from tests.tiny_models import VOCAB

GREEDY = SamplingParams(temperature=0.0)
SETTINGS = {
    "greedy": (GREEDY,),
    "sampled": (
        SamplingParams(temperature=0.8, seed=5),
        SamplingParams(temperature=1.2, seed=2**60),
    ),
    "filtered": (SamplingParams(temperature=0.8, top_p=0.95, seed=7), GREEDY),
    "mixed": (GREEDY, SamplingParams(seed=9), SamplingParams(top_k=5, min_p=0.05, seed=1)),
}


class Pair:
    """A draft asked token by token, one asked for all tokens at once, and equal slots of both."""

    def __init__(self, lengths: tuple[int, ...], decoder: str = "fused llama", **limits: Any):
        self.recorder = JudgingRecorder()
        self.by_token = ragged(decoder, **limits)
        self.in_one_go = fixed(decoder, self.recorder, **limits)
        rng = random.Random(0)
        self.rng = rng
        self.slots = []
        for length in lengths:
            ids = [rng.randrange(VOCAB) for _ in range(length)]
            (slot,) = {model.allocate() for model in self.models}
            for model in self.models:
                score(model, [(slot, ids, 0)])
            self.slots.append(slot)

    @property
    def models(self) -> tuple[ModelRunner, ModelRunner]:
        return self.by_token, self.in_one_go

    def turn(
        self, row: int, params: SamplingParams, new: int = 1, num_choices: int = 4
    ) -> RoundRow:
        ids = tuple(self.rng.randrange(VOCAB) for _ in range(new))
        return round_row(self.slots[row], ids, (), num_choices, SamplingRules(params, prompt_len=3))

    def check(self, turns: list[RoundRow], min_confidence: float = 0.0) -> list[tuple[int, ...]]:
        expected, found = (propose(model, turns, min_confidence) for model in self.models)
        assert found == expected
        for turn in turns:
            lens = {model.cached_len(turn[1].slot) for model in self.models}
            assert len(lens) == 1, "what is cached afterwards is part of the promise"
        assert self.by_token.num_free_blocks == self.in_one_go.num_free_blocks
        return found


@pytest.mark.covering(1)
@pytest.mark.parametrize("settings", sorted(SETTINGS))
@pytest.mark.parametrize("decoder", ["fused llama", "qwen3", "glm4"])
def test_proposals_are_those_of_a_draft_asked_token_by_token(decoder: str, settings: str) -> None:
    pair = Pair((3, 17, 40, 63, 64), decoder)
    params = SETTINGS[settings]
    before = pair.recorder.num_replayed
    for turn in range(4):
        rows = range(5) if turn % 2 else range(3)
        turns = [pair.turn(row, params[row % len(params)], 1 + (row + turn) % 3) for row in rows]
        assert all(len(proposal) == 4 for proposal in pair.check(turns))
    assert pair.recorder.num_replayed == before + 16, "no pass beside those of the loop"


def test_rows_may_draft_different_numbers_and_none() -> None:
    pair = Pair((5, 20, 9, 33))
    turns = [pair.turn(row, GREEDY, num_choices=k) for row, k in enumerate((1, 6, 0, 3))]
    assert [len(proposal) for proposal in pair.check(turns)] == [1, 6, 0, 3]
    pair.check([pair.turn(row, GREEDY) for row in range(4)])


def test_a_long_catch_up_goes_in_front() -> None:
    pair = Pair((5, 20, 1))
    turns = [pair.turn(0, GREEDY, new=50), pair.turn(1, GREEDY), pair.turn(2, GREEDY, new=9)]
    pair.check(turns)


@pytest.mark.parametrize("min_confidence", [0.05, 0.2, 0.9])
def test_a_proposal_ends_before_an_unsure_token(min_confidence: float) -> None:
    pair = Pair((3, 17, 40, 63, 64))
    for _ in range(3):
        turns = [pair.turn(row, GREEDY, num_choices=6) for row in range(5)]
        found = pair.check(turns, min_confidence)
    assert min_confidence < 0.2 or any(len(proposal) < 6 for proposal in found)


def test_rules_that_look_at_the_ids_take_the_host() -> None:
    pair = Pair((3, 17))
    biased = SamplingParams(temperature=0.0, logit_bias=((5, 100.0),))
    assert pair.check([pair.turn(0, biased), pair.turn(1, GREEDY)])[0] == (5, 5, 5, 5)


def test_where_nothing_can_be_chosen_a_proposal_ends() -> None:
    pair = Pair((3, 17))
    for model in pair.models:
        for keys, _ in model._kv.all_pools:
            keys[0] = torch.nan  # the first place of the first row
    proposals = pair.check([pair.turn(0, GREEDY), pair.turn(1, GREEDY)])
    assert proposals[0] == ()
    assert len(proposals[1]) == 4


def test_out_of_blocks_leaves_everything_unchanged() -> None:
    pair = Pair((15, 16), kv_cache_tokens=48)
    model = pair.in_one_go
    with pytest.raises(OutOfBlocksError):
        propose(model, [pair.turn(row, GREEDY) for row in range(2)])
    assert [model.cached_len(slot) for slot in pair.slots] == [15, 16]
    assert model.num_free_blocks == 1


def test_a_warm_up_writes_no_key_of_a_sequence() -> None:
    """Its rows read block 0, and what the last round left lies where other rows count."""
    model = fixed("fused llama", WarmingRecorder())
    slots = [model.allocate() for _ in range(5)]
    score(model, [(slot, (3, 4, 5), 0) for slot in slots])
    pools = [pool for layer in model._kv.all_pools for pool in layer]
    before = [pool[:1].clone() for pool in pools]
    for count in (1, 5):
        rules = SamplingRules(SamplingParams(temperature=0.8, seed=5), prompt_len=3)
        propose(model, [round_row(slot, (7,), (), 4, rules) for slot in slots[:count]])
    for pool, first in zip(pools, before, strict=True):
        assert torch.equal(pool[:1], first)


def test_a_draft_short_of_memory_is_asked_token_by_token() -> None:
    """A step is not recorded in place of the step before it, round after round."""
    recorder = ScarceRecorder(num_recordings=1)
    models = ragged("fused llama"), fixed("fused llama", recorder)
    (slot,) = {model.allocate() for model in models}
    rules = SamplingRules(GREEDY, prompt_len=3)
    for token in range(3):
        turns = [round_row(slot, (7, token), (), 4, rules)]
        expected, found = (propose(model, turns) for model in models)
        assert found == expected
    assert recorder.num_recorded == 1


def test_the_host_asks_once_for_all_tokens() -> None:
    pair = Pair((5, 20, 9))
    pair.check([pair.turn(row, GREEDY) for row in range(3)])
    before = pair.recorder.num_recorded
    pair.check([pair.turn(row, GREEDY) for row in range(3)])
    assert pair.recorder.num_recorded == before, "the same shape is recorded once"


def test_steps_of_a_larger_shape_stand_in() -> None:
    """For one whose rows choose alike: greedy ones need another recording than drawn ones."""
    pair = Pair((5, 20, 9, 33, 17))
    pair.check([pair.turn(row, GREEDY) for row in range(5)])
    before = pair.recorder.num_recorded
    pair.check([pair.turn(row, GREEDY, num_choices=3) for row in range(2)])
    pair.check([pair.turn(0, GREEDY, num_choices=1)])
    assert pair.recorder.num_recorded == before
    pair.check([pair.turn(row, SamplingParams(temperature=0.9, seed=row)) for row in range(2)])
    assert pair.recorder.num_recorded > before


def test_a_draft_without_a_recorder_is_asked_token_by_token() -> None:
    assert not ragged("fused llama").drafts_in_one_go
    assert ragged("fused llama").draft(ForwardInput.of([]), [], 0.0) is None
