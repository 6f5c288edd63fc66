"""The two halves of a round by themselves: what is drafted, committed, measured and kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from specdec_core import SamplingParams
from specdec_core.model import DraftChoice, ForwardInput, score
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow, SamplingRules
from specdec_core.worker.round import (
    MAX_FED_AT_ONCE,
    RoundRow,
    propose,
    round_row,
    score_and_verify,
)
from tests.fakes import TokenListModel

PROMPT = (1, 2, 3)
GREEDY = SamplingParams(temperature=0.0, max_tokens=100)
PENALISED = SamplingParams(
    temperature=0.7, seed=5, frequency_penalty=1.5, repetition_penalty=1.3, max_tokens=100
)


class SilentBehind(TokenListModel):
    """Offers no id behind so many tokens."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length

    def logits(self, ids: Sequence[int]) -> Tensor:
        logits = super().logits(ids)
        return logits.fill_(-math.inf) if len(ids) >= self._length else logits


class InOneGo(TokenListModel):
    """Drafts as a GPU does; remembers how many tokens a row began with."""

    drafts_in_one_go = True

    def draft(
        self, batch: ForwardInput, choices: Sequence[DraftChoice], min_confidence: float
    ) -> None:
        self.fed = batch.token_counts


def plain(model: TokenListModel, params: SamplingParams, count: int) -> tuple[int, ...]:
    """What follows the prompt, one choice after the other."""
    ids = PROMPT
    for _ in range(count):
        row = SampleRow(SamplingRules(params, len(PROMPT)), len(ids), ids)
        ids = (*ids, *choose(model.logits(ids).unsqueeze(0), [row], model.vocab_size))
    return ids[len(PROMPT) :]


def turn(
    model: TokenListModel,
    params: SamplingParams,
    proposal: tuple[int, ...] = (),
    num_choices: int = 1,
) -> RoundRow:
    rules = SamplingRules(params, len(PROMPT))
    return round_row(model.allocate(), PROMPT, proposal, num_choices, rules)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=3), PENALISED])
def test_a_draft_guesses_what_plain_decoding_of_itself_would_emit(params: SamplingParams) -> None:
    model = TokenListModel()
    assert propose(model, [turn(model, params, num_choices=6)]) == [plain(model, params, 6)]


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=3), PENALISED])
@pytest.mark.parametrize("num_right", [0, 2, 5])
def test_a_round_commits_what_plain_decoding_would_emit(
    params: SamplingParams, num_right: int
) -> None:
    model = TokenListModel()
    expected = plain(model, params, 6)
    wrong = tuple((token + 1) % model.vocab_size for token in expected[num_right:5])
    asked = turn(model, params, (*expected[:num_right], *wrong), 6)
    (verdict,) = score_and_verify(model, [asked])
    assert verdict.num_accepted == num_right
    assert verdict.tokens == expected[: num_right + 1]
    assert model.cached_len(asked[1].slot) == len(PROMPT) + num_right


def test_a_draft_stops_where_nothing_can_be_chosen() -> None:
    draft = SilentBehind(len(PROMPT) + 2)
    proposals = propose(draft, [turn(draft, GREEDY, num_choices=5), turn(draft, GREEDY)])
    expected = plain(draft, GREEDY, 2)
    assert proposals == [expected, expected[:1]]


def confidences(model: TokenListModel, ids: Sequence[int]) -> list[float]:
    """Of every id of `ids` behind the prompt and those before it."""
    before = [(*PROMPT, *ids[:j]) for j in range(len(ids))]
    return [float(model.logits(b).softmax(-1)[i]) for b, i in zip(before, ids, strict=True)]


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=3)])
def test_a_draft_stops_before_the_first_token_that_it_is_not_sure_of(
    params: SamplingParams,
) -> None:
    """The threshold lies just above the least sure of 6 tokens, so exactly that one ends it."""
    model = TokenListModel()
    expected = plain(model, params, 6)
    sure = confidences(model, expected)
    place = sure.index(min(sure[1:]))
    unsure = turn(model, params, num_choices=6)
    catching_up = turn(model, params, num_choices=0)
    proposals = propose(model, [unsure, catching_up], min_confidence=sure[place] * 1.001)
    first_below = next(j for j, value in enumerate(sure) if value < sure[place] * 1.001)
    assert proposals == [expected[:first_below], ()]
    assert model.cached_len(unsure[1].slot) == len(PROMPT) + first_below


def test_a_token_of_exactly_the_least_confidence_is_proposed() -> None:
    model = TokenListModel()
    expected = plain(model, GREEDY, 1)
    logits = model.logits(PROMPT).unsqueeze(0).float()
    exactly = float((logits.max() - logits.logsumexp(-1)).exp())
    assert propose(model, [turn(model, GREEDY)], min_confidence=exactly) == [expected]


def test_a_row_where_nothing_can_be_chosen_is_never_confident() -> None:
    draft = SilentBehind(len(PROMPT) + 2)
    proposals = propose(draft, [turn(draft, GREEDY, num_choices=5)], min_confidence=1e-9)
    assert proposals == [plain(draft, GREEDY, 2)]


def test_what_stands_before_a_position_without_a_choice_is_committed() -> None:
    target = SilentBehind(len(PROMPT) + 2)
    expected = plain(target, GREEDY, 2)
    asked = turn(target, GREEDY, (*expected, 7), 4)
    (verdict,) = score_and_verify(target, [asked])
    assert (verdict.num_accepted, verdict.tokens) == (1, expected)
    assert target.cached_len(asked[1].slot) == len(PROMPT) + 1


def test_each_token_is_measured_at_its_own_position() -> None:
    model = TokenListModel()
    params = SamplingParams(temperature=0.0, num_logprobs=0, max_tokens=100)
    expected = plain(model, params, 4)
    wrong = (expected[2] + 1) % model.vocab_size
    asked = [
        turn(model, params, (*expected[:2], wrong), 4),
        turn(model, GREEDY),
        turn(model, params),
    ]
    first, silent, last = score_and_verify(model, asked)
    assert silent.logprobs == ()
    for verdict, count in ((first, 3), (last, 1)):
        assert verdict.tokens == expected[:count]
        for j, entry in enumerate(verdict.logprobs):
            raw = model.logits((*PROMPT, *expected[:j])).log_softmax(-1)
            assert entry.logprob == float(raw[expected[j]])
        assert len(verdict.logprobs) == count


def test_rows_that_only_catch_up_commit_nothing_and_disturb_nobody() -> None:
    model = TokenListModel()
    asked = [turn(model, GREEDY, num_choices=0), turn(model, GREEDY)]
    catching_up, choosing = score_and_verify(model, asked)
    assert catching_up.tokens == ()
    assert model.cached_len(asked[0][1].slot) == len(PROMPT)
    assert choosing.tokens == plain(model, GREEDY, 1)
    behind = model.logits((*PROMPT, *choosing.tokens))
    assert torch.equal(score(model, [(asked[1][1].slot, choosing.tokens, 1)])[0], behind)


@pytest.mark.parametrize(
    ("behind", "num_fed"), [(2, 2), (MAX_FED_AT_ONCE, MAX_FED_AT_ONCE), (MAX_FED_AT_ONCE + 1, 1)]
)
def test_a_draft_that_is_far_behind_is_fed_in_front_of_its_steps(behind: int, num_fed: int) -> None:
    model = InOneGo()
    ids = tuple(range(1, behind + 1))
    rules = SamplingRules(GREEDY, 0)
    (proposal,) = propose(model, [round_row(model.allocate(), ids, (), 3, rules)])
    assert model.fed == [num_fed]
    assert len(proposal) == 3
