"""Parts of the service are swapped in its own processes, and nowhere else."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.host_time.served.swapping import (
    FOLDER_VARIABLE,
    SwappingFinder,
    begin,
    swaps,
    variables,
)


def _python(code: str, environment: dict[str, str]) -> str:
    """Return what a new interpreter prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_module_is_changed_once_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swapped_part.py").write_text("name = 'own'\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def change(module: ModuleType) -> None:
        module.__dict__["name"] += " and changed"

    monkeypatch.setattr(
        sys, "meta_path", [SwappingFinder({"swapped_part": change}), *sys.meta_path]
    )
    module = importlib.import_module("swapped_part")
    monkeypatch.delitem(sys.modules, "swapped_part")
    assert module.name == "own and changed"
    assert importlib.import_module("swapped_part").name == "own"
    monkeypatch.delitem(sys.modules, "swapped_part")


def test_without_the_variable_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    before = list(sys.meta_path)
    begin()
    assert sys.meta_path == before


def test_what_is_swapped_exists(tmp_path: Path) -> None:
    for name in swaps(tmp_path):
        assert importlib.util.find_spec(name) is not None


def test_a_process_of_the_service_has_scripted_lookups(tmp_path: Path) -> None:
    code = (
        "from specdec_core.speculation.registry import DRAFTERS;print(DRAFTERS['ngram'].__module__)"
    )
    ours = _python(code, os.environ | variables(tmp_path))
    assert ours == "benchmarks.host_time.served.lookup"
    assert _python(code, dict(os.environ)) == "specdec_core.speculation.ngram"


def test_a_process_of_the_service_loads_modelled_devices(tmp_path: Path) -> None:
    code = (
        "from deployments.replica import model_host; import deployments.coordinator.service;"
        "from deployments.coordinator.driver import SchedulerDriver;"
        "print(type(model_host.load_model).__name__, SchedulerDriver._read_result.__module__)"
    )
    ours = _python(code, os.environ | variables(tmp_path))
    assert ours == "ModelledLoader benchmarks.host_time.served.leases"
