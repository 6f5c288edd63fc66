"""Messages and pages name only commands that work: no package index has this project."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def _tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=_ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [_ROOT / name for name in done.stdout.splitlines()]


def test_no_text_tells_to_install_the_package_from_an_index() -> None:
    texts = [p for p in _tracked() if p.suffix in {".py", ".md", ".toml", ".yaml", ".txt"}]
    assert len(texts) > 500
    unwanted = "install specdec" + "-serve"
    quotes = str.maketrans("", "", "\"'`")
    found = [p for p in texts if p.exists() and unwanted in p.read_text().translate(quotes)]
    assert not found
