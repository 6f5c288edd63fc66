"""Folders that are made in one step."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def made_whole(folder: Path) -> Iterator[Path]:
    """A folder that is there completely or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        yield scratch
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
