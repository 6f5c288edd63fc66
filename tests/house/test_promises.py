"""The page of promises names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text()


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 250
    missing = []
    for name, test in named:
        file = ROOT / name
        if not file.exists() or (test and f"def {test}(" not in file.read_text()):
            missing.append(f"{name}::{test}")
    assert missing == []


def test_promises_without_a_test_do_not_become_more() -> None:
    assert PAGE.count("no test found") <= 8
