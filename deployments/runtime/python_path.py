"""Where processes that this one starts find what it imports, installed or not."""

from __future__ import annotations

import os
import sys


def python_path() -> str:
    """As PYTHONPATH has it."""
    return os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
