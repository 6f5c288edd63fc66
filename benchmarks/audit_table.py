"""docs/audit.md from the audit's results: `python -m benchmarks.audit_table`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "audit.jsonl"
DOCUMENT = Path(__file__).parent.parent / "docs" / "audit.md"

_ALGORITHMS = ("eqspec", "exspec-padded", "exspec")
_METHODS, _TEMPERATURES = ("ngram", "draft_model"), (0.0, 0.8)
_INTRODUCTION = """# The audit: what was compared

Made by `python -m benchmarks.audit_table` from [audit.jsonl](../benchmarks/results/audit.jsonl).
Every line there is one cell of `specdec verify` on SmolLM2-135M-Instruct with prompts of
Spec-Bench: B sequences at a time, K drafted tokens, temperature T, against plain decoding of each
prompt alone. `make audit` runs what is missing. The draft model is the target without one of its
layers, or a draft of one layer that `train-draft` made: often wrong, as acceptance shows.
"""

Row = dict[str, Any]


def document(rows: Sequence[Row]) -> str:
    return "\n".join([_INTRODUCTION, *_sections(rows), *_beside_fast(rows)])


def _sections(rows: Sequence[Row]) -> Iterator[str]:
    kinds = dict.fromkeys(_kind(row) for row in rows if _numerics(row) == "exact")
    for kind in kinds:
        dtype, max_tokens = kind
        mine = [row for row in rows if _kind(row) == kind and _numerics(row) == "exact"]
        commits = ", ".join(sorted({row["commit"] for row in mine}))
        yield f"## {dtype}, exact, up to {max_tokens} tokens\n"
        yield f"Commit {commits}. {_equal(mine)} outputs are id for id those of plain decoding.\n"
        yield from _by_algorithm(mine)
        yield from _grid(mine)


def _by_algorithm(rows: Sequence[Row]) -> Iterator[str]:
    yield "| | drafts | cells | equal outputs | accepted of drafted | acceptance length |"
    yield "|---|---|--:|--:|--:|--:|"
    for key in dict.fromkeys(_key(row) for row in rows):
        mine = [row for row in rows if _key(row) == key]
        accepted, drafted = _total(mine, "num_accepted"), _total(mine, "num_drafted")
        share = f"{accepted} of {drafted}" if drafted else "-"
        yield f"| {key[0]} | {key[1]} | {len(mine)} | {_equal(mine)} | {share} | {_length(mine)} |"
    yield ""


def _grid(rows: Sequence[Row]) -> Iterator[str]:
    """Which cells were run: equal outputs of all three speculative algorithms together."""
    speculative = [row for row in rows if row.get("algorithm") in _ALGORITHMS]
    batches = sorted({row["batch_size"] for row in speculative})
    drafted = sorted({row["num_draft_tokens"] for row in speculative})
    yield "| equal outputs | " + " | ".join(f"B = {batch}" for batch in batches) + " |"
    yield "|---|" + "--:|" * len(batches)
    for method, temperature, k in product(_METHODS, _TEMPERATURES, drafted):
        cells = [
            _equal_or_dash(_cells(speculative, method, temperature, k, batch)) for batch in batches
        ]
        yield f"| {method}, T = {temperature:g}, K = {k} | " + " | ".join(cells) + " |"
    yield ""


def _cells(
    rows: Iterable[Row], method: str, temperature: float, drafted: int, batch: int
) -> list[Row]:
    wanted = (method, temperature, drafted, batch)
    names = ("method", "temperature", "num_draft_tokens", "batch_size")
    return [row for row in rows if tuple(row[name] for name in names) == wanted]


def _beside_fast(rows: Sequence[Row]) -> Iterator[str]:
    """The same cells with the same prompts in both numerics."""
    fast = {_identity(row): row for row in rows if _numerics(row) == "fast"}
    pairs = [
        (row, fast[_identity(row)])
        for row in rows
        if _numerics(row) == "exact" and _identity(row) in fast
    ]
    if not pairs:
        return
    yield "## Exact beside fast\n"
    yield "Another answer has another acceptance length, so lengths differ where answers do.\n"
    yield "| | equal: exact | fast | acceptance length: exact | fast | ratio |"
    yield "|---|--:|--:|--:|--:|--:|"
    for exact, other in pairs:
        ratio = exact["mean_acceptance_length"] / other["mean_acceptance_length"]
        yield (
            f"| {exact['settings']['dtype']} {exact['cell']} | {_equal([exact])} | "
            f"{_equal([other])} | {_length([exact])} | {_length([other])} | {ratio:.3f} |"
        )
    yield ""


def _kind(row: Row) -> tuple[str, int]:
    return row["settings"]["dtype"], row["settings"]["max_tokens"]


def _numerics(row: Row) -> str:
    return str(row["settings"]["numerics"])


def _identity(row: Row) -> tuple[Any, ...]:
    return (row["cell"], *_kind(row), json.dumps(row["settings"]["prompts"]))


def _key(row: Row) -> tuple[str, str]:
    """The line about generate() compares plain decoding with transformers."""
    return row.get("algorithm", row["cell"]), row.get("method", "-")


def _total(rows: Iterable[Row], name: str) -> int:
    return sum(row.get(name, 0) for row in rows)


def _equal(rows: Sequence[Row]) -> str:
    return f"{_total(rows, 'num_equal')} of {_total(rows, 'num_requests')}"


def _equal_or_dash(rows: Sequence[Row]) -> str:
    return _equal(rows) if rows else "not run"


def _length(rows: Sequence[Row]) -> str:
    rounds = _total(rows, "num_proposed_rounds")
    return f"{1 + _total(rows, 'num_accepted') / rounds:.3f}" if rounds else "-"


def read_results(path: Path = RESULTS) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    DOCUMENT.write_text(document(read_results()))
    print(DOCUMENT)
