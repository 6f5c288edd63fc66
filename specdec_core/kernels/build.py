"""Builds a C file and the headers beside it with the machine's C compiler, once per machine.

The library is kept in the user's cache, named by a hash of all that it was made from.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from specdec_core.cache_folder import cache_folder

FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fno-math-errno", "-fPIC", "-pthread", "-shared")
_BUILD_TIMEOUT_S = 120.0

_logger = logging.getLogger(__name__)


def build_library(source: Path, flags: Sequence[str] = FLAGS) -> tuple[ctypes.CDLL, str]:
    """The library, built unless this machine has done so, and its identity: equal where the bits
    are. Raises OSError or SubprocessError."""
    compiler = os.environ.get("CC", "cc")
    identity = _identity(source, compiler, flags)
    path = cache_folder("kernels") / f"{source.stem}-{identity}.so"
    if not path.is_file():
        _build([compiler, *flags], source, path)
    return ctypes.CDLL(str(path)), identity


def reason_of(error: Exception) -> str:
    """Why a build failed: the compiler's own words, where it said any."""
    if isinstance(error, subprocess.CalledProcessError):
        return error.stderr.decode(errors="replace").strip() or str(error)
    return str(error)


def _identity(source: Path, compiler: str, flags: Sequence[str]) -> str:
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, check=True, timeout=_BUILD_TIMEOUT_S
    ).stdout
    facts = [*_texts(source), version, " ".join(flags).encode(), _machine().encode()]
    return hashlib.sha256(b"\0".join(facts)).hexdigest()[:16]


def _texts(source: Path) -> list[bytes]:
    """Of a file, and of the files of ours that it includes."""
    text = source.read_bytes()
    included = re.findall(rb'^#include "(.+)"', text, flags=re.MULTILINE)
    return [text, *(t for name in included for t in _texts(source.parent / name.decode()))]


def _machine() -> str:
    """What -march=native looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    names = ("model", "model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in names}))


def _build(command: Sequence[str], source: Path, path: Path) -> None:
    """Into a file of its own first: several processes may build at once."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        arguments = [*command, "-o", str(built), str(source), "-lm"]
        subprocess.run(arguments, capture_output=True, check=True, timeout=_BUILD_TIMEOUT_S)
        built.replace(path)
    _logger.info("built the CPU kernels: %s", path)
