"""Builds a C file and the headers next to it with the machine's C compiler, once per machine.

The library is stored in the user's cache, named by a hash of everything that it was made from.
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
    """Return the library and its identity. Build it unless this machine has a build. Equal
    identities mean equal bits. Raises OSError or SubprocessError."""
    compiler = os.environ.get("CC", "cc")
    identity = _identity(source, compiler, flags)
    path = cache_folder("kernels") / f"{source.stem}-{identity}.so"
    if not path.is_file():
        _build([compiler, *flags], source, path)
    return ctypes.CDLL(str(path)), identity


def reason_of(error: Exception) -> str:
    """Return the reason of a failed build: the compiler's own text if it printed any."""
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
    """Return the texts of a file and of our own files that it includes."""
    text = source.read_bytes()
    included = re.findall(rb'^#include "(.+)"', text, flags=re.MULTILINE)
    return [text, *(t for name in included for t in _texts(source.parent / name.decode()))]


def _machine() -> str:
    """Return the facts of the machine that -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    names = ("model", "model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in names}))


def _build(command: Sequence[str], source: Path, path: Path) -> None:
    """Build into a temporary folder and rename, because several processes may build in parallel."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        arguments = [*command, "-o", str(built), str(source), "-lm"]
        subprocess.run(arguments, capture_output=True, check=True, timeout=_BUILD_TIMEOUT_S)
        built.replace(path)
    _logger.info("built the CPU kernels: %s", path)
