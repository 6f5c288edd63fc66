"""The tables of docs/draft_accelerator.md from the results:
python -m benchmarks.studies.draft_accelerator.tables
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.studies.draft_accelerator.layouts import COLOCATED, PLAIN, cost, per_device

RESULTS = Path(__file__).parent
FILES = ("sweep.json", "measured.json")
DOCUMENT = Path(__file__).parents[3] / "docs" / "draft_accelerator.md"
_SPLITS = ("3 targets + 1 draft", "2 targets + 2 drafts", "3 targets + half a draft")

Cell = dict[str, Any]


def with_tables(text: str) -> str:
    """`text` with every table whose first column some result has, as that result is now."""
    for name in FILES:
        text = _with_table(text, list(_lines(json.loads((RESULTS / name).read_text()))))
    return text


def _with_table(text: str, table: list[str]) -> str:
    """In the place of the one that begins alike, up to the next empty line, its last line too."""
    lines = text.split("\n")
    first = lines.index(table[0])
    behind = lines.index("", lines.index("", first) + 1)
    return "\n".join([*lines[:first], *table, *lines[behind:]])


def _lines(result: dict[str, Any]) -> Iterator[str]:
    cells: list[Cell] = result["cells"]
    first = "D / V" if "ratio" in cells[0] else "pair"
    heads = (first, "acceptance", "load", "plain, tokens/s", COLOCATED, *_SPLITS)
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for cell in cells:
        plain = per_device(cell["tokens_per_second"])[PLAIN]
        entries = (_entry(cell, name) for name in (COLOCATED, *_SPLITS))
        told = (cell.get("ratio", "measured"), cell["acceptance"], cell["load"], f"{plain:.1f}")
        yield f"| {' | '.join([*map(str, told), *entries])} |"
    yield ""
    told = f"Seeds: {result['seeds']}, {result['seconds']:g} simulated seconds each behind as many "
    told += f"that were not counted, at {result['commit']}."
    yield told + (_spread_of(cells) if result["seeds"] > 1 else "")


def _spread_of(cells: list[Cell]) -> str:
    spreads = [_spread(cell, name) for cell in cells for name in (COLOCATED, *_SPLITS)]
    return (
        f" Between the seeds the first figure of an entry differs by {median(spreads):.2f} in the "
        f"middle of all entries and by {max(spreads):.2f} at most."
    )


def _entry(cell: Cell, name: str) -> str:
    """Tokens/s for each accelerator and the cost of a token at 4:1, both over plain targets'."""
    rates = cell["tokens_per_second"]
    own = per_device(rates)
    price = cost(name, rates[name], 4.0, 1.0) / cost(PLAIN, rates[PLAIN], 4.0, 1.0)
    return f"{own[name] / own[PLAIN]:.2f} · {price:.2f}"


def _spread(cell: Cell, name: str) -> float:
    """Between the seeds: each over plain targets with the same requests."""
    runs = zip(*cell["by_seed"].values(), strict=True)
    rates = [per_device(dict(zip(cell["by_seed"], run, strict=True))) for run in runs]
    over = [one[name] / one[PLAIN] for one in rates]
    return max(over) - min(over)


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
    print(DOCUMENT)
