"""What the runs of the sweep come to: medians, the two ratios, a table, a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.no_slowdown_cells import CONTROLLER, OFF, PLAIN, Cell, Run
from deployments.cli.plotting import picture

LEAST_OVER_PLAIN = 0.97
LEAST_OVER_OFF = 0.97
LEAST_OVER_BEST = 0.95


def cell_record(cell: Cell, runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """One cell as JSON. The controller has one run more, its first; it stands aside."""
    first, *later = runs[CONTROLLER]
    timed = {**runs, CONTROLLER: later}
    figure = figure_of(cell)
    speeds = {name: median(getattr(run, figure) for run in own) for name, own in timed.items()}
    best = max((name for name in speeds if name != CONTROLLER), key=lambda name: speeds[name])
    return {
        "batch": cell.batch,
        "acceptance": cell.acceptance,
        "num_prompts": cell.num_prompts,
        "figure": figure,
        "tokens_per_second": speeds,
        "best_fixed": best,
        "over_plain": _ratio(later, timed[PLAIN], figure),
        "over_off": _ratio(later, timed[OFF], figure),
        "over_best_fixed": _ratio(later, timed[best], figure),
        "first_over_plain": getattr(first, figure) / speeds[PLAIN],
        "mean_k": median(run.mean_k for run in later),
        "num_different": sum(run.num_different for own in runs.values() for run in own),
        "runs": {name: [asdict(run) for run in own] for name, own in runs.items()},
    }


def figure_of(cell: Cell) -> str:
    """Return the attribute of a run that counts. With whole prompts it leaves their time out."""
    return "decode_tokens_per_second" if cell.acceptance is None else "tokens_per_second"


def _ratio(runs: Sequence[Run], others: Sequence[Run], figure: str) -> float:
    """Median of the ratios turn by turn: a slow minute of the machine counts on both sides."""
    pairs = zip(runs, others, strict=True)
    return median(getattr(run, figure) / getattr(other, figure) for run, other in pairs)


def cells_table(records: Sequence[Mapping[str, Any]]) -> Table:
    names = list(records[0]["tokens_per_second"]) if records else []
    columns = [{PLAIN: "plain"}.get(name, name) for name in names]
    table = Table("B", "rate", *columns, title="Tokens/s: medians of the turns", pad_edge=False)
    for title in ("mean K", "/ plain", "/ off", "/ best", "best", "1st run", "diff"):
        table.add_column(title, justify="right")
    for place, record in enumerate(records):
        if place and record["batch"] != records[place - 1]["batch"]:
            table.add_section()
        speeds = [f"{speed:.0f}" for speed in record["tokens_per_second"].values()]
        table.add_row(
            str(record["batch"]),
            _rate(record),
            *speeds,
            f"{record['mean_k']:.2f}",
            _marked(record["over_plain"], LEAST_OVER_PLAIN),
            _marked(record["over_off"], LEAST_OVER_OFF),
            _marked(record["over_best_fixed"], LEAST_OVER_BEST),
            record["best_fixed"].replace(PLAIN, "plain"),
            f"{record['first_over_plain']:.2f}",
            str(record["num_different"]),
        )
    return table


def _rate(record: Mapping[str, Any]) -> str:
    return Cell(record["batch"], record["acceptance"], record["num_prompts"]).rate


def _marked(ratio: float, least: float) -> str:
    return f"{ratio:.3f}" if ratio >= least else f"[bold red]{ratio:.3f}[/]"


def plot(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    with picture(path, 15, 4) as figure:
        sides = zip(
            figure.subplots(1, 3),
            ("over_plain", "over_off", "over_best_fixed"),
            (LEAST_OVER_PLAIN, LEAST_OVER_OFF, LEAST_OVER_BEST),
            ("plain decoding", "speculation off", "the best fixed K, 0 included"),
            strict=True,
        )
        for axes, key, least, what in sides:
            for rate in dict.fromkeys(map(_rate, records)):
                own = [record for record in records if _rate(record) == rate]
                batches = [record["batch"] for record in own]
                ratios = [record[key] for record in own]
                axes.plot(batches, ratios, marker="o", label=f"acceptance {rate}")
            axes.axhline(least, color="grey", linewidth=1, linestyle="--")
            axes.set_xscale("log", base=2)
            axes.set(xlabel="batch size", ylabel="tokens/s of the controller over", title=what)
            axes.legend()
