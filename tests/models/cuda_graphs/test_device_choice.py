"""The draft's own choice against the exact one: the same ids where it promises them."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from specdec_core.sampling.device import (
    ChoiceKind,
    choose_on_device,
    facts_of,
    kind_of,
    noise_keys_on_device,
    pack_facts,
)
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling_params import MAX_SEED, SampleRow, SamplingParams, SamplingRules, mix64

VOCAB = 300
GREEDY = SamplingParams(temperature=0.0)


def chosen(
    logits: Tensor,
    rows: list[SamplingParams],
    positions: list[int],
    min_confidence: float = 0.0,
    num_padding: int = 3,
) -> list[int]:
    num_rows = len(rows) + num_padding
    facts = torch.frombuffer(pack_facts(rows, min_confidence, num_rows), dtype=torch.int32)
    padded = torch.cat([logits, torch.zeros(num_padding, logits.shape[1])])
    position_R1 = torch.tensor([*positions, *[0] * num_padding]).unsqueeze(1)
    kind = kind_of(rows)
    ids = choose_on_device(padded, position_R1, facts_of(facts), kind, min_confidence > 0.0)
    return ids[: len(rows)].tolist()


def exactly(logits: Tensor, rows: list[SamplingParams], positions: list[int]) -> list[int]:
    choice_rows = [
        SampleRow(SamplingRules(params, prompt_len=0), position)
        for params, position in zip(rows, positions, strict=True)
    ]
    return choose(logits, choice_rows, logits.shape[1])


def random_params(rng: random.Random) -> SamplingParams:
    return SamplingParams(
        temperature=rng.choice([0.0, 0.3, 1.0, 1.5]),
        top_k=rng.choice([0, 0, 1, 5, 50]),
        top_p=rng.choice([1.0, 0.95, 0.3]),
        min_p=rng.choice([0.0, 0.0, 0.1]),
        seed=rng.randrange(MAX_SEED + 1),
    )


def test_keys_of_the_noise_are_those_of_the_host() -> None:
    rng = random.Random(0)
    pairs = [(rng.randrange(MAX_SEED + 1), rng.randrange(1 << 20)) for _ in range(200)]
    pairs += [(0, 0), (MAX_SEED, 2**31)]
    seeds, positions = (torch.tensor(column).unsqueeze(1) for column in zip(*pairs, strict=True))
    found = noise_keys_on_device(seeds, positions)
    hashes = [((high & 0xFFFFFFFF) << 32) | (low & 0xFFFFFFFF) for low, high in found.tolist()]
    assert hashes == [mix64(*pair) for pair in pairs]


def is_within_candidates(params: SamplingParams) -> bool:
    """Whether filters end among the first 64 ids whatever the logits."""
    has_filters = params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0
    return params.temperature == 0.0 or not has_filters or params.top_k > 0


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_choices_equal_the_exact_ones(scale: float) -> None:
    """All that are promised, and nearly all others where the logits are not flat."""
    rng = random.Random(1)
    torch.manual_seed(0)
    others: list[bool] = []
    for _ in range(40):
        rows = [random_params(rng) for _ in range(rng.randint(1, 9))]
        positions = [rng.randrange(4096) for _ in rows]
        logits = torch.randn(len(rows), VOCAB) * scale
        pairs = zip(chosen(logits, rows, positions), exactly(logits, rows, positions), strict=True)
        for params, (found, expected) in zip(rows, pairs, strict=True):
            if is_within_candidates(params):
                assert found == expected, params
            else:
                others.append(found == expected)
    assert len(others) > 40
    assert sum(others) > (0.97 if scale > 1.0 else 0.4) * len(others)


def test_ties_go_to_the_lowest_id() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[1, [7, 40, 299]] = 1.0
    assert chosen(logits, [GREEDY, GREEDY], [0, 0]) == [0, 7]
    sampled = [GREEDY, SamplingParams(temperature=0.0, top_p=0.5)]
    assert chosen(logits, [*sampled], [0, 0]) == [0, 7]


def test_a_failed_row_chooses_nothing() -> None:
    logits = torch.randn(4, VOCAB)
    logits[0] = -torch.inf
    logits[1, 5] = torch.nan
    logits[2, 5] = torch.inf
    hot = SamplingParams(temperature=1.0, seed=3)
    for params in (GREEDY, hot, SamplingParams(temperature=1.0, top_k=5)):
        ids = chosen(logits, [params] * 4, [0] * 4)
        assert ids[:3] == [NO_CHOICE] * 3
        assert ids[3] != NO_CHOICE


def test_an_unsure_token_is_not_chosen() -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0]]).repeat(2, 1)
    sure = float(logits[0].softmax(-1)[2])
    assert chosen(logits, [GREEDY] * 2, [0] * 2, min_confidence=sure * 0.999) == [2, 2]
    assert chosen(logits, [GREEDY] * 2, [0] * 2, min_confidence=sure * 1.001) == [NO_CHOICE] * 2


def test_the_kind_is_the_most_that_a_row_needs() -> None:
    filtered, plain = SamplingParams(top_p=0.9), SamplingParams(temperature=0.5)
    greedy_with_filters = SamplingParams(temperature=0.0, top_k=5)
    assert kind_of([GREEDY, greedy_with_filters]) is ChoiceKind.GREEDY
    assert kind_of([GREEDY, filtered]) is ChoiceKind.FILTERED
    assert kind_of([plain, filtered]) is ChoiceKind.SAMPLED
