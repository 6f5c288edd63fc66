"""The table of renamed modules and classes names only what exists: old pages are read with it."""

from __future__ import annotations

import csv
import re

from tests.house.code_lines import ROOT

TABLE = ROOT / "docs/decisions/renames.csv"


def exists(name: str) -> bool:
    """Return True for a file, or for a dotted name that its module mentions."""
    if "/" in name:
        return (ROOT / name).exists()
    module, _, member = name.rpartition(".")
    path = ROOT / module.replace(".", "/")
    sources = [one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()]
    return any(re.search(rf"\b{member}\b", one.read_text()) for one in sources)


def test_every_new_name_exists() -> None:
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert [row["new"] for row in rows if not exists(row["new"])] == []
