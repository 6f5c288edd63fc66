"""Where what was made once for this machine is kept: the user's cache."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """The folder of one kind of things, made where it is missing. Raises OSError."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "specdec" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
