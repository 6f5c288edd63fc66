"""On what a result was measured, found without torch: it is in every result, and results of another
machine, commit or library are not mixed."""

from __future__ import annotations

import functools
import hashlib
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_LIBRARIES = ("torch", "transformers", "triton", "numpy")
_SOURCES = ("specdec_core", "benchmarks")
_SUFFIXES = (".py", ".c", ".h", ".cpp")
_UNKNOWN = "unknown"
NO_GPU = "none"


@functools.cache
def environment() -> dict[str, str]:
    """Equal where results may stand on one page."""
    return {
        **_gpu(),
        "host": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in _LIBRARIES},
        "commit": _output(["git", "rev-parse", "HEAD"]) or _UNKNOWN,
        "git dirty": _git_dirty(),
        "source": source_digest(ROOT),
    }


def has_gpu() -> bool:
    """Or something that looks like one: torch says later what it is."""
    return environment()["gpu"] != NO_GPU


def gpu_memory_used() -> str:
    """Of all processes, as nvidia-smi says it; empty without a GPU."""
    return _output(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"])


def source_digest(root: Path) -> str:
    """Of the files that are measured and those that measure, also where there is no git."""
    digest = hashlib.sha256()
    paths = [path for folder in _SOURCES for path in (root / folder).rglob("*")]
    for path in sorted(path for path in paths if path.suffix in _SUFFIXES):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _gpu() -> dict[str, str]:
    """The first of them: that is where everything runs."""
    found = _output(
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    )
    if found:
        first, *others = found.splitlines()
        name, driver, memory = (part.strip() for part in first.split(","))
        return {"gpu": name, "driver": driver, "memory": memory, "gpus": str(1 + len(others))}
    is_there = any(Path("/dev").glob("nvidia[0-9]*"))
    return {"gpu": _UNKNOWN if is_there else NO_GPU, "driver": _UNKNOWN}


def _git_dirty() -> str:
    if not _output(["git", "rev-parse", "HEAD"]):
        return _UNKNOWN
    return "yes" if _output(["git", "status", "--porcelain", "--untracked-files=no"]) else "no"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _output(command: Sequence[str]) -> str:
    """Empty where the command is missing or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
