"""A separate environment for each client below a cache folder, and how a client runs in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
INSTALL_S, RUN_S = 600, 300


class EnvironmentMissingError(Exception):
    """The machine lacks what a client needs."""


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/specdec-clients, or the same below ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "specdec-clients"


def run_client(
    name: str, url: str, variables: Mapping[str, str] | None = None, script: str = "client"
) -> str:
    """Run a client's script against the server at `url`; return what the script printed.

    Raises EnvironmentMissingError, and AssertionError with the output if the script fails.
    """
    command = _node_command(name, script) if _is_node(name) else _python_command(name, script)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENAI_"))}
    done = subprocess.run(
        command,
        env=environment | {"SPECDEC_URL": url, "NO_PROXY": "127.0.0.1"} | dict(variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def _is_node(name: str) -> bool:
    return (FOLDER / name / "package.json").is_file()


def _python_command(name: str, script: str) -> list[str]:
    """The client's script under a virtual environment with its pinned requirements."""
    requirements = FOLDER / name / "requirements.txt"
    folder = _prepared_folder(name, requirements)
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        _install([str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)], folder)
    return [str(python), "-I", str(FOLDER / name / f"{script}.py")]


def _node_command(name: str, script: str) -> list[str]:
    """The client's script in the folder that has its packages."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise EnvironmentMissingError("node and npm are not installed")
    package = FOLDER / name / "package.json"
    folder = _prepared_folder(name, package)
    if not (folder / "installed").exists():
        shutil.copy(package, folder)
        _install([npm, "install", "--no-audit", "--no-fund", "--silent"], folder)
    shutil.copy(FOLDER / name / f"{script}.mjs", folder)
    return [node, str(folder / f"{script}.mjs")]


def _prepared_folder(name: str, pinned: Path) -> Path:
    """A folder that other versions of the packages do not share."""
    content = pinned.read_bytes() + sys.version.encode()
    folder = cache_folder() / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _install(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, timeout=INSTALL_S, capture_output=True, text=True)
    if done.returncode:
        raise EnvironmentMissingError(f"{' '.join(command)}: {done.stderr[-500:]}")
    (folder / "installed").touch()
