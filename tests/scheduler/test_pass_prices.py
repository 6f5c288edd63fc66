"""Prices of passes: what was told, corrected by passes that were run."""

from __future__ import annotations

import pytest

from specdec_core.speculation.pass_prices import GUESSED_DRAFTS, PassPrices
from specdec_core.step_times import StepTime

TOLD = [StepTime(n, n * tokens, 0.01 + 0.001 * n * tokens) for n in (1, 8) for tokens in (1, 4, 16)]
PLAIN_S = 0.018
"""Seconds of a pass of 8 plain rows, as it was told."""


def told() -> PassPrices:
    prices = PassPrices()
    prices.expect(TOLD)
    return prices


def test_prices_are_those_that_were_told_before_any_pass() -> None:
    assert told().price(8, 8).seconds == pytest.approx(PLAIN_S)
    assert told().price(8, 32).seconds == pytest.approx(0.042)
    assert told().row_share(8) == pytest.approx(8 / 18)


def test_the_first_pass_says_how_much_longer_all_of_them_take() -> None:
    prices = told()
    prices.observe(8, 8, 3 * PLAIN_S)
    assert prices.price(8, 8).seconds == pytest.approx(3 * PLAIN_S, rel=0.02)
    assert prices.price(8, 32).seconds == pytest.approx(3 * 0.042, rel=0.02)


def test_passes_of_two_sizes_correct_a_wrong_slope() -> None:
    """Drafted rows are free here, although the table says otherwise."""
    prices = told()
    for _ in range(5):
        for rows in (8, 32):
            prices.observe(8, rows, PLAIN_S)
    assert prices.price(8, 32).seconds == pytest.approx(PLAIN_S, rel=0.1)
    assert prices.price(8, 64).seconds < 0.6 * told().price(8, 64).seconds


def test_one_slow_pass_met_other_work_and_three_are_the_machine() -> None:
    prices = told()
    for _ in range(20):
        prices.observe(8, 8, PLAIN_S)
    settled = prices.price(8, 8).seconds
    for _ in range(2):
        prices.observe(8, 8, 5 * PLAIN_S)
        assert prices.price(8, 8).seconds == pytest.approx(settled, rel=0.01)
    prices.observe(8, 8, 5 * PLAIN_S)
    assert prices.price(8, 8).seconds == pytest.approx(5 * PLAIN_S, rel=0.1)
    assert prices.price(8, 32).seconds == pytest.approx(5 * 0.042, rel=0.1)


def test_a_long_context_that_met_other_work_leaves_every_price_above_zero() -> None:
    prices = PassPrices()
    short = [StepTime(n, n, 0.001 + 0.0001 * n, 16) for n in (1, 4, 8)]
    prices.expect([*short, StepTime(4, 4, 0.05, 112)])
    prices.observe(1, 1, 0.001, cached=3.0)
    assert 0.0 < prices.price(1, 1).seconds <= prices.price(1, 4).seconds


@pytest.mark.parametrize("times_longer", [2.0, 4.0])
def test_one_size_that_became_dearer_is_told_from_a_slow_machine(times_longer: float) -> None:
    prices = told()
    for turn in range(60):
        prices.observe(8, 8, PLAIN_S)
        prices.observe(8, 32, 0.042 * (times_longer if turn >= 20 else 1.0))
    assert prices.price(8, 8).seconds == pytest.approx(PLAIN_S, rel=0.1)
    assert prices.price(8, 32).seconds == pytest.approx(times_longer * 0.042, rel=0.1)


def test_a_drafts_lease_is_guessed_to_take_its_steps_and_half_a_step() -> None:
    prices = PassPrices(expected=GUESSED_DRAFTS)
    prices.observe(8, 8, 0.002)
    assert prices.price(8, 32).seconds == pytest.approx(3 * 0.002, rel=0.02)
    assert prices.price(16, 64).seconds == pytest.approx(3 * 0.002, rel=0.02)


@pytest.mark.parametrize(("lease_s", "step_s"), [(0.006, 0.001), (0.001, 0.001), (0.0, 0.001)])
def test_leases_of_two_sizes_tell_steps_from_the_lease_itself(
    lease_s: float, step_s: float
) -> None:
    prices = PassPrices(expected=GUESSED_DRAFTS)
    for steps in (8, 1) * 4:
        prices.observe(8, 8 * steps, lease_s + steps * step_s)
    assert prices.price(8, 8 * 4).seconds == pytest.approx(lease_s + 4 * step_s, rel=0.1)


def test_settled_prices_are_computed_again_every_eight_passes() -> None:
    prices = told()
    for _ in range(40):
        prices.observe(8, 8, PLAIN_S)
    assert prices.num_seen % 8 == 0
    before = prices.price(8, 8).seconds
    found = []
    for _ in range(8):
        prices.observe(8, 8, 1.1 * PLAIN_S)
        found.append(prices.price(8, 8).seconds)
    assert found[:7] == [before] * 7
    assert found[7] > before


def test_settled_prices_are_computed_again_at_once_after_a_surprise() -> None:
    prices = told()
    for _ in range(40):
        prices.observe(8, 8, PLAIN_S)
    before = prices.price(8, 8).seconds
    prices.observe(8, 8, 1.25 * PLAIN_S)
    assert prices.price(8, 8).seconds > before


@pytest.mark.parametrize("times_longer", [3, 15])
@pytest.mark.parametrize("num_plain", [1, 2400])
def test_drafted_passes_that_met_other_work_are_doubted(num_plain: int, times_longer: int) -> None:
    """Their price was uncertain, so that a long pass was believed and never tried again."""
    prices = told()
    for _ in range(num_plain):
        prices.observe(8, 8, PLAIN_S)
    for _ in range(1 if num_plain == 1 else 2):
        prices.observe(8, 64, times_longer * 0.074)
    prices.observe(8, 8, PLAIN_S)
    assert prices.price(8, 64).spread > 0.15
    for _ in range(4):
        prices.observe(8, 64, 0.074)
    assert prices.price(8, 64).seconds == pytest.approx(0.074, rel=0.1)


def test_rows_of_different_tiles_are_never_of_one_size() -> None:
    prices = PassPrices(tile_rows=50)
    ends = [prices.last_alike(rows) for rows in (1, 7, 15, 16, 17, 49, 50, 51)]
    assert ends == [1, 7, 15, 16, 18, 50, 50, 52]
