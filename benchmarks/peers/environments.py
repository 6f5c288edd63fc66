"""`setup`: a virtual environment for each engine, with pinned versions, made by pip."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import IO

from packaging.requirements import Requirement

from benchmarks.harness.commands import StageReport
from benchmarks.peers.engines import READY, EngineSpec
from specdec_core.errors import SpecdecError


class SetupError(SpecdecError):
    """pip failed; says where its output lies."""


def make_environments(specs: Sequence[EngineSpec], venvs: Path, report: StageReport) -> None:
    """Make what is missing. Raises SetupError at the first step that fails."""
    for spec in {spec.venv: spec for spec in specs if spec.venv is not None}.values():
        assert spec.venv is not None
        if not (venvs / spec.venv / READY).is_file():
            _make(spec, venvs / spec.venv, report)


def _make(spec: EngineSpec, folder: Path, report: StageReport) -> None:
    steps = [*spec.installs, *([()] if spec.without_requirements else [])]
    log = folder / "setup.log"
    report(str(spec.venv), 0, len(steps) + 1)
    venv.create(folder, symlinks=True, with_pip=True)
    with log.open("w") as output:
        pip = _Pip(spec.name, folder, output)
        for done, packages in enumerate(spec.installs, start=1):
            report(str(spec.venv), done, len(steps) + 1)
            pip.install(*packages)
        if spec.without_requirements is not None:
            report(str(spec.venv), len(steps), len(steps) + 1)
            pip.install("--no-deps", spec.without_requirements)
            pip.install(*requirements_of(spec, pip.packages))
    if spec.alias is not None:
        write_alias(pip.packages, *spec.alias)
    (folder / READY).touch()
    report(str(spec.venv), len(steps) + 1, len(steps) + 1)


class _Pip:
    """Of an environment. Raises SetupError where it fails."""

    def __init__(self, name: str, folder: Path, output: IO[str]) -> None:
        self._name, self._folder, self._output = name, folder, output

    @property
    def packages(self) -> Path:
        (found,) = self._folder.glob("lib/python*/site-packages")
        return found

    def install(self, *packages: str) -> None:
        call = [str(self._folder / "bin" / "python"), "-m", "pip", "install", *packages]
        if subprocess.run(call, stdout=self._output, stderr=subprocess.STDOUT).returncode:
            told = f"pip install {' '.join(packages)}"
            raise SetupError(f"{told} failed for {self._name}: see {self._output.name}")


def requirements_of(spec: EngineSpec, packages: Path) -> list[str]:
    """What the distribution that was installed alone requires here, but for what is left unmet."""
    assert spec.without_requirements is not None
    name = Requirement(spec.without_requirements).name
    (found,) = metadata.distributions(name=name, path=[str(packages)])
    needed = [Requirement(line) for line in found.requires or ()]
    return [
        f"{each.name}{_extras(each)}{each.specifier}"
        for each in needed
        if each.name not in spec.unmet
        and (each.marker is None or each.marker.evaluate({"extra": ""}))
    ]


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def write_alias(packages: Path, name: str, version: str) -> None:
    """A distribution of metadata alone."""
    folder = packages / f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
