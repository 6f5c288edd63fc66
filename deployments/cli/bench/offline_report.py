"""Report of an offline measurement: medians of every cell, ratios to plain decoding, a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from rich.table import Table

from deployments.cli.bench.offline_runs import detokenise_seconds
from deployments.cli.generate.output import STAGES
from deployments.cli.timed_run import TimedRun
from deployments.cli.verify.cells import PLAIN, Cell
from deployments.text.detokenizer import Decode


class CellRuns(NamedTuple):
    """A cell and its runs, in order."""

    cell: Cell
    runs: list[TimedRun]


Record = dict[str, Any]


def cell_records(measured: Sequence[CellRuns], decode: Decode) -> list[Record]:
    """Return every cell as JSON: medians over its runs, and each run."""
    plain = {cell.point.batch_size: runs for cell, runs in measured if cell.algorithm == PLAIN}
    return [
        _record(cell, runs, plain.get(cell.point.batch_size))
        | {"detokenise_share": detokenise_seconds(runs[0].tokens, decode) / runs[0].seconds}
        for cell, runs in measured
    ]


def _record(cell: Cell, runs: Sequence[TimedRun], plain: Sequence[TimedRun] | None) -> Record:
    method, num_draft_tokens, batch_size, _ = cell.point
    return {
        "name": cell.name,
        "algorithm": cell.algorithm,
        "spec_method": str(method),
        "spec_tokens": num_draft_tokens,
        "batch_size": batch_size,
        "tokens_per_second": median(run.tokens_per_second for run in runs),
        "ratio": None if plain is None else ratio(runs, plain),
        "mean_acceptance_length": median(run.stats.mean_acceptance_length for run in runs),
        "median_ttft_ms": median(_median_ttft_ms(run) for run in runs),
        "stage_shares": stage_shares(runs),
        "different_outputs": None if plain is None else runs[0].num_different(plain[0]),
        "runs": [_run_record(run) for run in runs],
    }


def ratio(runs: Sequence[TimedRun], plain: Sequence[TimedRun]) -> float:
    """Return the tokens per second relative to plain decoding at the same batch size.

    This is the median of the ratios turn by turn. A slow minute of the machine then counts on both
    sides.
    """
    return median(
        run.tokens_per_second / other.tokens_per_second
        for run, other in zip(runs, plain, strict=True)
    )


def stage_shares(runs: Sequence[TimedRun]) -> dict[str, float]:
    """Return each stage's share of the seconds of all runs. `other` is the time outside all
    stages."""
    total = sum(run.seconds for run in runs)
    shares = {
        stage: sum(run.stats.seconds.get(stage, 0.0) for run in runs) / total for stage in STAGES
    }
    return shares | {"other": max(1.0 - sum(shares.values()), 0.0)}


def _median_ttft_ms(run: TimedRun) -> float:
    return 1000 * median(run.ttft_s)


def _run_record(run: TimedRun) -> Record:
    return {**run.totals(), "median_ttft_ms": _median_ttft_ms(run)}


def cells_table(records: Sequence[Record]) -> Table:
    table = Table("cell", title="Medians over the runs; ratio: to autoregressive, same batch")
    for title in ("tokens/s", "ratio", "acceptance length", "TTFT (ms)", "seconds by stage"):
        table.add_column(title, justify="left" if title == "seconds by stage" else "right")
    table.add_column("different", justify="right")
    for place, record in enumerate(records):
        if place and record["batch_size"] != records[place - 1]["batch_size"]:
            table.add_section()
        table.add_row(*_row(record))
    return table


def _row(record: Mapping[str, Any]) -> list[str]:
    is_plain = record["algorithm"] == PLAIN
    has_ratio = record["ratio"] is not None
    return [
        record["name"],
        f"{record['tokens_per_second']:.1f}",
        f"{record['ratio']:.2f}" if has_ratio else "-",
        "-" if is_plain else f"{record['mean_acceptance_length']:.2f}",
        f"{record['median_ttft_ms']:.1f}",
        _stages(record),
        str(record["different_outputs"]) if has_ratio else "-",
    ]


def _stages(record: Mapping[str, Any]) -> str:
    """Return the shares of the seconds. The time for text is not part of the seconds."""
    shares = [(stage, share) for stage, share in record["stage_shares"].items() if share >= 0.005]
    told = ", ".join(f"{stage} {share:.0%}" for stage, share in shares)
    return f"{told}; detokenise +{record['detokenise_share']:.1%}"
