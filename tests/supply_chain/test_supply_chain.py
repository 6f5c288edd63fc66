"""What is installed is named, and an audit that did not happen is no pass."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.supply_chain.__main__ import FOUND, LOCK, NOT_RUN, judge, main

ROOT = Path(__file__).parents[2]
SBOM_TOOL = ROOT / ".venv-sbom/bin/cyclonedx-py"
SAFE = {"name": "a", "version": "1", "vulns": []}
HOLED = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("dependencies", "status", "words"),
    [
        ([SAFE], 0, "1 of 1 packages audited"),
        ([SAFE, UNKNOWN], 0, "NOT AUDITED: c\n1 of 2 packages audited"),
        ([SAFE, HOLED], FOUND, r"b 2: PYSEC-1, fixed in \['3'\]"),
        ([UNKNOWN], NOT_RUN, "WERE NOT AUDITED"),
        ([], NOT_RUN, "WERE NOT AUDITED"),
    ],
)
def test_only_what_was_looked_up_passes(
    dependencies: list[dict[str, Any]], status: int, words: str
) -> None:
    found, said = judge(dependencies, may_be_unreachable=False)
    assert found == status
    assert re.search(words, said)


def test_a_closed_network_may_be_allowed_and_a_hole_may_not() -> None:
    assert judge([UNKNOWN], may_be_unreachable=True)[0] == 0
    assert "NOT AUDITED" in judge([UNKNOWN], may_be_unreachable=True)[1]
    assert judge([HOLED, UNKNOWN], may_be_unreachable=True)[0] == FOUND


def test_an_audit_that_fails_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="a trace\nno connection")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: failed)
    assert main([]) == NOT_RUN
    assert main(["--may-be-unreachable"]) == 0
    assert capsys.readouterr().out.count("no connection\nDEPENDENCIES WERE NOT AUDITED") == 2


def names(requirements: list[str]) -> set[str]:
    """`ray[serve]>=2.60` is of ray; names compare as PyPI compares them."""
    return {re.split(r"[\[<>=! ;]", one)[0].lower().replace("_", "-") for one in requirements}


def locked() -> set[str]:
    lines = LOCK.read_text().splitlines()
    return names([line for line in lines if line and not line.startswith("#")])


def test_every_direct_dependency_has_an_exact_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    assert names(project["dependencies"] + extras) - {"specdec-serve"} <= locked()


def test_the_bill_of_materials_names_our_direct_dependencies(tmp_path: Path) -> None:
    """As `make sbom` makes it."""
    if not SBOM_TOOL.exists():
        pytest.skip(f"{SBOM_TOOL} is not installed: `make sbom`")
    file = tmp_path / "sbom.json"
    command = [str(SBOM_TOOL), "environment", "--pyproject"]
    command += [str(ROOT / "pyproject.toml"), "--output-file", str(file), sys.executable]
    subprocess.run(command, check=True, capture_output=True)
    bill = json.loads(file.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "specdec-serve"
    listed = {one["name"].lower().replace("_", "-"): one for one in bill["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in names(project["dependencies"]):
        assert listed[name]["version"]
        assert listed[name]["purl"].startswith("pkg:pypi/")


def test_no_tool_slows_the_start_of_every_process() -> None:
    """Ray imports jsonschema, and that imports this where it is installed: 1.5 s for a grammar."""
    assert importlib.util.find_spec("rfc3987_syntax") is None
