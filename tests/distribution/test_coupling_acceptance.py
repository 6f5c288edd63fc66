"""The closed forms behind the acceptance plot, against enumeration and against the real noise."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from specdec_core.sampling.gumbel import gumbel, noise_keys
from tests.distribution.coupling_law import Acceptance, acceptances, expected_rounds

NUM_PAIRS, VOCAB = 40, 12


def pairs_of_laws(spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Logarithms of target and draft laws: from almost equal to unrelated ones."""
    generator = torch.Generator().manual_seed(3)
    z = 2 * torch.randn(NUM_PAIRS, VOCAB, generator=generator, dtype=torch.float64)
    noise = torch.randn(NUM_PAIRS, VOCAB, generator=generator, dtype=torch.float64)
    amount = torch.linspace(0.01, 3.0, NUM_PAIRS, dtype=torch.float64).unsqueeze(1)
    return (z / spread).log_softmax(-1), ((z + amount * noise) / spread).log_softmax(-1)


def acceptance(log_p: Tensor, log_q: Tensor) -> Acceptance:
    average, _ = acceptances(log_p, log_q, torch.zeros(len(log_p), dtype=torch.long))
    return average


def test_coupled_acceptance_is_the_double_sum() -> None:
    """Sum over v of 1 / sum over u of max(p_u / p_v, q_u / q_v), term by term."""
    log_p, log_q = pairs_of_laws()
    for p, q, coupled in zip(
        log_p.exp().tolist(), log_q.exp().tolist(), acceptance(log_p, log_q).coupled, strict=True
    ):
        expected = math.fsum(
            1 / math.fsum(max(p[u] / p[v], q[u] / q[v]) for u in range(VOCAB)) for v in range(VOCAB)
        )
        assert float(coupled) == pytest.approx(expected, rel=1e-12)


def test_coupled_acceptance_lies_between_its_bound_and_rejection_sampling() -> None:
    result = acceptance(*pairs_of_laws())
    assert (result.bound < result.coupled).all()
    assert (result.coupled < result.rejection).all()
    assert (result.own_noise < result.coupled).all()


def test_equal_laws_are_always_accepted_and_disjoint_ones_never() -> None:
    log_p, _ = pairs_of_laws()
    assert acceptance(log_p, log_p).coupled.sub(1.0).abs().max() < 1e-12
    first = torch.tensor([[0.5, 0.5, 0.0, 0.0]], dtype=torch.float64).log()
    result = acceptance(first, first.flip(1))
    assert float(result.coupled) == float(result.rejection) == 0.0


def test_the_service_s_noise_accepts_as_often_as_the_closed_form_says() -> None:
    """40 pairs, 4,000 positions each: every count within 5 standard deviations (6e-7 each)."""
    log_p, log_q = pairs_of_laws()
    count = 4000
    expected = acceptance(log_p, log_q).coupled
    ids = torch.arange(VOCAB, dtype=torch.int32)
    for index in range(NUM_PAIRS):
        keys = noise_keys([(index, position) for position in range(count)], torch.device("cpu"))
        g = gumbel(keys, ids).double()
        equal = ((log_p[index] + g).argmax(-1) == (log_q[index] + g).argmax(-1)).sum()
        p = float(expected[index])
        assert abs(int(equal) - count * p) <= 5 * math.sqrt(count * p * (1 - p)) + 1e-9


def test_acceptance_averages_over_what_the_target_emits() -> None:
    log_p, log_q = pairs_of_laws()
    mean = acceptance(log_p, log_q)
    for rule in ("rejection", "coupled", "own_noise", "no_noise"):
        total = torch.zeros(NUM_PAIRS, dtype=torch.float64)
        for v in range(VOCAB):
            _, given = acceptances(log_p, log_q, torch.full((NUM_PAIRS,), v))
            total += log_p[:, v].exp() * getattr(given, rule)
        assert torch.allclose(total, getattr(mean, rule), rtol=1e-12, atol=1e-15), rule


@pytest.mark.parametrize("num_draft_tokens", [1, 2, 4])
def test_expected_rounds_by_enumerating_every_outcome(num_draft_tokens: int) -> None:
    chances = [0.9, 0.2, 0.7, 0.5, 1.0, 0.0, 0.6]
    expected = 0.0
    for outcome in itertools.product([False, True], repeat=len(chances)):
        pairs = zip(outcome, chances, strict=True)
        probability = math.prod(c if accepted else 1 - c for accepted, c in pairs)
        expected += probability * _rounds(outcome, num_draft_tokens)
    assert expected_rounds(chances, num_draft_tokens) == pytest.approx(expected)


def _rounds(accepted: tuple[bool, ...], num_draft_tokens: int) -> int:
    """Each round takes the accepted run behind it, K at most, and one more token."""
    start = rounds = 0
    while start < len(accepted):
        run = itertools.takewhile(bool, accepted[start : start + num_draft_tokens])
        start += len(list(run)) + 1
        rounds += 1
    return rounds
