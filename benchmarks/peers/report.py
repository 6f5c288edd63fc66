"""What the runs come to: medians, ratios turn by turn, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.peers.cells import Cell
from benchmarks.peers.engines import PLAIN
from benchmarks.peers.rounds import Run

OURS = "specdec"
Record = dict[str, Any]
Runs = Mapping[Cell, Sequence[Run]]


def records(runs: Runs) -> list[Record]:
    """Every cell as JSON."""
    return [_record(cell, runs) for cell in runs]


def _record(cell: Cell, runs: Runs) -> Record:
    own = runs[cell]
    plain = _plain(cell.engine, cell.batch_size, runs)
    reference = _plain(OURS, cell.batch_size, runs)
    return {
        "name": cell.name,
        **cell._asdict(),
        "tokens_per_second": speed(own),
        "over_own_plain": None if plain is None else ratio(own, runs[plain]),
        "equal_to_specdec_plain": None if reference is None else _num_equal(own, runs[reference]),
        "figures": {name: median(run.figures[name] for run in own) for name in own[0].figures},
        "runs": [_run_record(run) for run in own],
    }


def _plain(engine: str, batch_size: int, runs: Runs) -> Cell | None:
    cell = Cell(engine, PLAIN, None, 0, batch_size)
    return cell if cell in runs else None


def speed(runs: Sequence[Run]) -> float:
    return median(run.tokens_per_second for run in runs)


def ratio(runs: Sequence[Run], other: Sequence[Run]) -> float:
    """The median of the ratios turn by turn, so that a slow minute of the machine counts on both
    sides. A side that failed in a later turn has fewer."""
    return median(
        mine.tokens_per_second / theirs.tokens_per_second
        for mine, theirs in zip(runs, other, strict=False)
    )


def _num_equal(runs: Sequence[Run], reference: Sequence[Run]) -> int:
    pairs = zip(runs[0].token_ids, reference[0].token_ids, strict=True)
    return sum(mine == theirs for mine, theirs in pairs)


def _run_record(run: Run) -> Record:
    return {
        "seconds": run.seconds,
        "num_tokens": run.num_tokens,
        "tokens_per_second": run.tokens_per_second,
        "figures": run.figures,
        "stolen": run.stolen,
        "others_cpu_s": run.others_cpu_s,
    }


def comparisons(runs: Runs) -> list[Record]:
    """Ours over every other engine, batch size by batch size: plain decoding over plain decoding,
    and the fastest that speculates over the fastest that the other has, plain or not."""
    others = dict.fromkeys((cell.batch_size, cell.engine) for cell in runs if cell.engine != OURS)
    return [_comparison(engine, batch_size, runs) for batch_size, engine in others]


def _comparison(engine: str, batch_size: int, runs: Runs) -> Record:
    here = [cell for cell in runs if cell.batch_size == batch_size]
    plain, their_plain = (_plain(name, batch_size, runs) for name in (OURS, engine))
    best = _fastest([cell for cell in here if cell.engine == OURS and cell.method != PLAIN], runs)
    their_best = _fastest([cell for cell in here if cell.engine == engine], runs)
    return {
        "engine": engine,
        "batch_size": batch_size,
        "plain_ratio": ratio(runs[plain], runs[their_plain]) if plain and their_plain else None,
        "best": best.name if best else None,
        "their_best": their_best.name if their_best else None,
        "best_ratio": ratio(runs[best], runs[their_best]) if best and their_best else None,
    }


def _fastest(cells: Sequence[Cell], runs: Runs) -> Cell | None:
    return max(cells, key=lambda cell: speed(runs[cell]), default=None)


def cells_table(found: Sequence[Record]) -> Table:
    table = Table("cell", title="Tokens per second: median, slowest and fastest round")
    for title in ("tokens/s", "range", "over plain", "acceptance", "equal"):
        table.add_column(title, justify="right", no_wrap=True)
    for place, record in enumerate(found):
        if place and record["batch_size"] != found[place - 1]["batch_size"]:
            table.add_section()
        speeds = [run["tokens_per_second"] for run in record["runs"]]
        table.add_row(
            record["name"],
            f"{record['tokens_per_second']:.1f}",
            f"{min(speeds):.1f}-{max(speeds):.1f}",
            _number(record["over_own_plain"]),
            _number(record["figures"].get("acceptance_length")),
            str(record["equal_to_specdec_plain"]),
        )
    return table


def comparisons_table(found: Sequence[Record]) -> Table:
    table = Table("batch", "peer", title="specdec over its peers")
    for title in ("plain / plain", "best / best"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("specdec's best", "the peer's best"):
        table.add_column(title)
    for record in found:
        table.add_row(
            str(record["batch_size"]),
            record["engine"],
            _number(record["plain_ratio"]),
            _number(record["best_ratio"]),
            str(record["best"]),
            str(record["their_best"]),
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
