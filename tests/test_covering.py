"""Which cases are kept, and that what is left over goes to `make nightly`."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.covering import covering


def grid(*sizes: int) -> list[dict[str, int]]:
    return [
        {f"p{place}": value for place, value in enumerate(values)}
        for values in product(*map(range, sizes))
    ]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 3))
def test_any_values_that_can_meet_do(sizes: list[int], strength: int) -> None:
    cases = grid(*sizes)
    kept = [cases[index] for index in covering(cases, strength)]
    for names in combinations(cases[0], min(strength, len(sizes))):
        wanted = set(product(*(range(sizes[int(name[1:])]) for name in names)))
        assert {tuple(case[name] for name in names) for case in kept} == wanted


@pytest.mark.parametrize(("strength", "most"), [(1, 5), (2, 35), (3, 150)])
def test_few_are_kept(strength: int, most: int) -> None:
    assert len(covering(grid(5, 5, 5, 4), strength)) <= most


def test_values_without_a_hash_are_told_apart() -> None:
    one, two = [1], [1]
    assert covering([{"a": one}, {"a": two}, {"a": one}], 1) == [0, 1]


def test_cases_that_bring_nothing_new_are_nightly(pytester: pytest.Pytester) -> None:
    two_tests(pytester)
    pytester.runpytest_inprocess("-m", "not nightly").assert_outcomes(passed=5, deselected=7)


def test_the_first_cases_are_one_of_each_test_that_is_not_nightly(
    pytester: pytest.Pytester,
) -> None:
    two_tests(pytester)
    found = pytester.runpytest_inprocess("-m", "not nightly", "--first-cases")
    found.assert_outcomes(passed=2, deselected=10)


def two_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.covering(1)
        @pytest.mark.parametrize("a", [0, 1, 2])
        @pytest.mark.parametrize("b", [0, 1, 2])
        def test_it(a, b):
            assert a == b

        @pytest.mark.parametrize("a", [pytest.param(0, marks=pytest.mark.nightly), 1, 2])
        def test_other(a):
            assert a > 0
        """
    )
    pytester.makeconftest(
        "from tests.conftest import pytest_addoption, pytest_collection_modifyitems"
    )
    pytester.makeini("[pytest]\nmarkers =\n  nightly: n\n  slow: s\n  gpu: g\n  covering: c\n")
