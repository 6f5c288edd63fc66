"""Folder for files that are made once for this machine: the user's cache."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return the folder for one kind of files, and make it if it is missing. Raises OSError."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "specdec" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
