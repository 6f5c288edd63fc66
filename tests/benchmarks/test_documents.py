"""Commands that documents name as the source of a figure exist."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COMMAND = re.compile(r"python -m (benchmarks\.[\w.]*\w)")


def test_every_benchmark_that_a_document_names_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {(page.name, module) for page in pages for module in _COMMAND.findall(page.read_text())}
    assert len(named) > 20
    assert not [(page, module) for page, module in named if find_spec(module) is None]
