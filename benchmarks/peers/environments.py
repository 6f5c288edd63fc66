"""`setup`: a virtual environment for each engine, with pinned versions, made by pip."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.peers.engines import READY, EngineSpec
from specdec_core.errors import SpecdecError

Report = Callable[[str, int, int], None]
"""Called with (engine, steps done, steps)."""


class SetupError(SpecdecError):
    """pip failed; says where its output lies."""


def make_environments(specs: Sequence[EngineSpec], venvs: Path, report: Report) -> None:
    """Make what is missing. Raises SetupError at the first step that fails."""
    for spec in {spec.venv: spec for spec in specs if spec.venv is not None}.values():
        assert spec.venv is not None
        if not (venvs / spec.venv / READY).is_file():
            _make(spec, venvs / spec.venv, report)


def _make(spec: EngineSpec, folder: Path, report: Report) -> None:
    commands = pip_commands(spec)
    log = folder / "setup.log"
    report(str(spec.venv), 0, len(commands) + 1)
    venv.create(folder, symlinks=True, with_pip=True)
    with log.open("w") as output:
        for done, command in enumerate(commands, start=1):
            report(str(spec.venv), done, len(commands) + 1)
            python = folder / "bin" / "python"
            call = [str(python), "-m", "pip", *command]
            if subprocess.run(call, stdout=output, stderr=subprocess.STDOUT).returncode:
                raise SetupError(f"pip {' '.join(command)} failed for {spec.name}: see {log}")
    (folder / READY).touch()
    report(str(spec.venv), len(commands) + 1, len(commands) + 1)


def pip_commands(spec: EngineSpec) -> list[list[str]]:
    """In order: torch has a step of its own wherever it is needed."""
    commands = [["install", *packages] for packages in spec.installs]
    if spec.uninstalls:
        commands.append(["uninstall", "--yes", *spec.uninstalls])
    return commands
