"""Emitted ids have the enumerated law, jointly, whatever speculates and whoever shares the batch.

All processors are mixed in every group. Each is tested setting by setting, and over all settings
together.
"""

from __future__ import annotations

import pytest

from tests.distribution.checks import check, merged
from tests.distribution.processors import PROCESSORS, WINDOWS
from tests.distribution.runs import Counts, Setting
from tests.distribution.samples import SEEDS_BY_SETTING, cases, many_of, sample_of


def assert_has_the_law(counts: Counts, name: str) -> None:
    for window in WINDOWS:
        result = check(counts, PROCESSORS[name], window)
        assert not result.is_rejected, f"ids {window}: {result}"


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("setting", cases(SEEDS_BY_SETTING), ids=str)
def test_three_emitted_ids_have_the_enumerated_law(setting: Setting, name: str) -> None:
    assert_has_the_law(sample_of(setting).counts[name], name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PROCESSORS)
def test_all_settings_together_have_the_enumerated_law(name: str) -> None:
    assert_has_the_law(merged(sample_of(s).counts[name] for s in SEEDS_BY_SETTING), name)


@pytest.mark.parametrize(
    "name", [pytest.param("untouched", marks=pytest.mark.nightly), "filters_together"]
)
def test_many_seeds_have_the_enumerated_law(name: str) -> None:
    assert_has_the_law(many_of(name).counts[name], name)


@pytest.mark.parametrize("setting", cases(s for s in SEEDS_BY_SETTING if s.k > 0), ids=str)
def test_the_drafts_of_these_settings_are_right_sometimes_and_wrong_sometimes(
    setting: Setting,
) -> None:
    """Else the tests above would say nothing about speculation."""
    stats = sample_of(setting).stats
    assert stats.num_accepted > 0.1 * stats.num_proposed_rounds
    assert stats.num_accepted < 0.9 * stats.num_drafted
