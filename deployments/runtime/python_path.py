"""The import path for processes that this process starts, whether packages are installed or not."""

from __future__ import annotations

import os
import sys


def python_path() -> str:
    """Return `sys.path` in the form of PYTHONPATH."""
    return os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
