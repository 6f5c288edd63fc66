"""Does a draft accelerator pay? Four accelerators in different layouts, simulated from step costs.

Once for a pair whose steps were measured (benchmarks.step_times), once for drafts whose step takes
some share of a target's. The pool is the real one, with the K controller on.

    python -m benchmarks.draft_accelerator --steps benchmarks/results/step_times.json
    python -m benchmarks.draft_accelerator --plot docs/img/draft_accelerator.png
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deployments.simulation.capacity_options import CapacityOptions, run
from specdec_core.config import KPolicyName

_DEVICES = 4
_ACCEPTANCES = (0.5, 0.7, 0.9)
_RATIOS = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Of a draft's step to a target's pass."""
_BASE_MS, _TOKEN_MS = 25.0, 0.05
"""The target of the sweep: a pass, and so much more for each fed token."""
_LOADS = {"low": 4, "high": 64}
"""Clients that always wait: one for each accelerator, two groups for each."""
_PRICES = {"1:1": (1.0, 1.0), "4:1": (4.0, 1.0)}
"""Of a target's accelerator and a draft's, per hour."""
_PLAIN = f"{_DEVICES} plain targets"


def main(
    steps: Annotated[
        Path | None, typer.Option(help="What benchmarks.step_times has written; else the sweep.")
    ] = None,
    seconds: float = 1.5,
    seeds: Annotated[int, typer.Option(help="Runs of every cell; the table has their means.")] = 1,
    output: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Print tokens per second and cost by layout; a plot of the sweep."""
    cells = _sweep(seconds, seeds) if steps is None else _measured(steps, seconds, seeds)
    _show(cells)
    if output is not None:
        output.write_text(json.dumps(cells, indent=1) + "\n")
    if plot is not None:
        _plot(cells, plot)


def _measured(steps: Path, seconds: float, seeds: int) -> list[dict[str, Any]]:
    found = json.loads(steps.read_text())
    verify, draft = (_table(found[name]) for name in ("verify_ms", "draft_ms"))
    return [{"pair": found["pair"], **cell} for cell in _cells(seconds, seeds, verify, draft)]


def _sweep(seconds: float, seeds: int) -> list[dict[str, Any]]:
    verify = f"{_BASE_MS}+{_TOKEN_MS}"
    return [
        {"ratio": ratio, **cell}
        for ratio in track(_RATIOS, description="ratios")
        for cell in _cells(seconds, seeds, verify, f"{ratio * _BASE_MS:g}+{ratio * _TOKEN_MS:g}")
    ]


def _table(points: dict[str, float]) -> str:
    return ",".join(f"{rows}:{ms:.3f}" for rows, ms in points.items())


def _cells(seconds: float, seeds: int, verify_ms: str, draft_ms: str) -> Iterator[dict[str, Any]]:
    for acceptance, (load, clients) in product(_ACCEPTANCES, _LOADS.items()):
        options = _options(verify_ms, draft_ms, acceptance, clients, seconds)
        rows = [row for seed in range(seeds) for row in run(replace(options, seed=seed))["layouts"]]
        rates = _by_layout(rows, "tokens_per_second")
        kept = {name: mean(own) for name, own in rates.items()}
        busy = [_by_layout(rows, f"{role}_utilisation") for role in ("target", "draft")]
        yield {
            "acceptance": acceptance,
            "load": load,
            "tokens_per_second": kept,
            "range": {name: (min(own), max(own)) for name, own in rates.items()},
            "utilisation": {name: [_mean(share[name]) for share in busy] for name in kept},
            "cost_per_million": {
                prices: {name: _cost(name, rate, *each) for name, rate in kept.items()}
                for prices, each in _PRICES.items()
            },
        }


def _mean(shares: list[Any]) -> float | None:
    """None where a layout has nobody of the role."""
    return None if None in shares else mean(shares)


def _by_layout(rows: list[dict[str, Any]], key: str) -> dict[str, list[Any]]:
    """Of every seed."""
    found: dict[str, list[Any]] = {row["layout"]: [] for row in rows}
    for row in rows:
        found[row["layout"]].append(row[key])
    return found


def _options(
    verify_ms: str, draft_ms: str, acceptance: float, clients: int, seconds: float
) -> CapacityOptions:
    return CapacityOptions(
        verify_ms=verify_ms,
        draft_ms=draft_ms,
        targets=_DEVICES - 1,
        drafts=1,
        cells=1,
        acceptance=acceptance,
        spec_tokens=4,
        spec_policy=KPolicyName.GOODPUT,
        batch_size=8,
        window=None,
        request_rate=None,
        burstiness=1.0,
        concurrency=clients,
        trace_file=None,
        prompt_len=128,
        output_len=128,
        seconds=seconds,
        warm_up=seconds,
        row_us=15.0,
        message_us=130.0,
        event_us=14.0,
        recommend=True,
        target_price=1.0,
        draft_price=1.0,
        seed=0,
    )


def _devices(layout: str) -> tuple[float, float]:
    """For targets and for drafts."""
    if "+" not in layout:
        return float(_DEVICES), 0.0
    targets, drafts = layout.split(" targets + ")
    return float(targets), 0.5 if "half" in drafts else float(drafts.split()[0])


def _cost(layout: str, rate: float, target_price: float, draft_price: float) -> float:
    targets, drafts = _devices(layout)
    return (targets * target_price + drafts * draft_price) / 3600 / rate * 1e6


def _per_device(cell: dict[str, Any]) -> dict[str, float]:
    rates: dict[str, float] = cell["tokens_per_second"]
    return {name: rate / sum(_devices(name)) for name, rate in sorted(rates.items())}


def _show(cells: list[dict[str, Any]]) -> None:
    names = list(_per_device(cells[0]))
    table = Table("draft", "acceptance", "load", *names, title="tokens/s per accelerator; cost 4:1")
    for cell in cells:
        rates, costs = _per_device(cell), cell["cost_per_million"]["4:1"]
        shown = (f"{rates[name]:.1f}; {costs[name]:.2f}" for name in names)
        draft = str(cell.get("ratio", "measured"))
        table.add_row(draft, str(cell["acceptance"]), cell["load"], *shown)
    Console(width=200).print(table)


def _plot(cells: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(12, 7), sharex=True, sharey=True)
    for (row, load), (column, acceptance) in product(enumerate(_LOADS), enumerate(_ACCEPTANCES)):
        axis = axes[row][column]
        chosen = [c for c in cells if c["load"] == load and c["acceptance"] == acceptance]
        for name in _per_device(chosen[0]):
            if name != _PLAIN:
                ratios = [_per_device(c)[name] / _per_device(c)[_PLAIN] for c in chosen]
                axis.plot([c["ratio"] for c in chosen], ratios, marker="o", label=name)
        axis.axhline(1.0, color="grey", linewidth=1, label=_PLAIN)
        axis.set_title(f"{load} load, acceptance {acceptance}")
        axis.set_xscale("log")
        axis.set_xticks(_RATIOS, [str(ratio) for ratio in _RATIOS])
        axis.minorticks_off()
    axes[0][0].legend(fontsize=8)
    figure.supxlabel("a draft's step over a target's pass")
    figure.supylabel("tokens/s per accelerator over plain decoding (simulated)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    typer.run(main)
