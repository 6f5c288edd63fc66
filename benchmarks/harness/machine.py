"""What a result says of where it comes from: the commit, the processor, what others took of it."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


def commit() -> str:
    """What is checked out, marked where files differ from it."""
    return git("describe", "--always", "--dirty")


def git(*arguments: str) -> str:
    """Return what git prints of this checkout. Empty outside a repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def stolen_share(before: Any, after: Any) -> float:
    """Between two readings of psutil.cpu_times: what the machine's host gave to others."""
    passed = [late - early for early, late in zip(before, after, strict=True)]
    stolen: float = passed[after._fields.index("steal")]
    return stolen / max(sum(passed), 1e-9)
