"""The catalogue fits the code: a defect that can no longer be seeded proves nothing."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import mutant as mutant_module
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, StaleMutantError
from tests.mutants.runner import ROOT, Outcome, outcome_of, read_report

EXAMPLE = Mutant(
    name="example",
    path="code.py",
    old="a + 1",
    new="a",
    breaks="nothing",
    killed_by=("test_code.py::test_it[3]", "test_code.py::TestAll::test_both"),
)


names_read_once = functools.cache(mutant_module._names_of_tests)
"""Many defects name tests of the same few files."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_applies_and_its_tests_exist(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant_module, "_names_of_tests", names_read_once)
    mutant.mutated(ROOT)
    mutant.check_tests(ROOT)
    assert mutant.killed_by
    assert mutant.breaks


def test_names_are_unique() -> None:
    repeated = [name for name, count in Counter(m.name for m in MUTANTS).items() if count > 1]
    assert not repeated


def test_no_defect_is_a_name_that_does_not_exist(tmp_path: Path) -> None:
    """A NameError fails every test, whatever it looks at."""
    for mutant in MUTANTS:
        if mutant.path.endswith(".py"):
            (tmp_path / f"{mutant.name}.py").write_text(mutant.mutated(ROOT))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select=F821"]
    found = subprocess.run([*command, tmp_path], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_no_two_mutants_are_the_same_defect() -> None:
    assert len({(m.path, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("b = a", "occurs 0 times"),
        ("b = a + 1\nc = a + 1\n", "occurs 2 times"),
        ("b = a + 1)", "does not compile"),
        ("b = 2  # a + 1", "changes nothing"),
    ],
)
def test_a_mutant_that_does_not_fit_the_code_is_stale(
    tmp_path: Path, code: str, message: str
) -> None:
    (tmp_path / "code.py").write_text(code)
    with pytest.raises(StaleMutantError, match=message):
        EXAMPLE.mutated(tmp_path)


def test_a_mutant_whose_test_is_gone_is_stale(tmp_path: Path) -> None:
    test_file = tmp_path / "test_code.py"
    with pytest.raises(StaleMutantError, match=r"no test test_code.py::test_it\[3\]"):
        EXAMPLE.check_tests(tmp_path)
    test_file.write_text("def test_it(): ...\n\nclass TestAll:\n    def test_one(self): ...\n")
    with pytest.raises(StaleMutantError, match=r"no test test_code.py::TestAll::test_both"):
        EXAMPLE.check_tests(tmp_path)


def test_the_defect_is_gone_afterwards(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text("b = a + 1\n")
    with EXAMPLE.applied(tmp_path):
        assert code.read_text() == "b = a\n"
    assert code.read_text() == "b = a + 1\n"


@pytest.mark.parametrize(
    ("cases", "outcome"),
    [
        ("<testcase/>", Outcome.SURVIVED),
        ('<testcase/><testcase><failure message="assert 1 == 2"/></testcase>', Outcome.KILLED),
        ('<testcase><failure message="NameError: name"/></testcase>', Outcome.BROKEN),
        ('<testcase><failure message="Failed: Timeout (>300s)"/></testcase>', Outcome.BROKEN),
        ('<testcase><error message="collection failure"/></testcase>', Outcome.BROKEN),
        ('<testcase><skipped message="needs a GPU"/></testcase>', Outcome.BROKEN),
        ("", Outcome.BROKEN),
    ],
)
def test_only_a_failing_test_kills(cases: str, outcome: Outcome) -> None:
    report = f"<testsuites><testsuite>{cases}</testsuite></testsuites>"
    assert outcome_of(read_report(report)) is outcome
