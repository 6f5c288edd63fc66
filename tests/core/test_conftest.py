"""What all tests share is imported where nothing but the engine's packages are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ALONE = """
import sys
sys.modules |= dict.fromkeys(("ray", "pydantic", "grpc", "psutil", "typer", "rich", "httpx"))
import tests.conftest
"""


def test_the_engine_s_tests_need_no_package_of_the_edge() -> None:
    """As `make test-floor` and a machine with a GPU run them."""
    ended = subprocess.run(
        [sys.executable, "-c", _ALONE], cwd=_ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
