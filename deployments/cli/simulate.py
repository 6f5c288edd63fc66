"""The command `specdec simulate`: faults by seeds, and capacity by costs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from deployments.cli.command import command
from deployments.config.flags import OUTPUT_FILE
from deployments.simulation.capacity_options import CapacityOptions

simulate_app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")

_SHOWN_LINES = 60


@simulate_app.callback()
def simulate(
    ctx: typer.Context,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from --first-seed on.")] = 500,
    first_seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Run only this seed.")] = None,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Print every event, not only the last ones before a violation."
        ),
    ] = False,
    max_violations: Annotated[
        int, typer.Option(min=1, help="Stop after this number of failing seeds.")
    ] = 1,
    output: Annotated[
        Path | None, typer.Option(help="File for the report, as JSON.", **OUTPUT_FILE)
    ] = None,
) -> None:
    """Run the service's own loops in worlds where everything fails.

    Each seed is a world in virtual time: at least 40 requests, 2 targets, 2 drafts and 8 faults of
    4 kinds. Every request must end with exactly the ids of plain decoding or a documented refusal,
    and nothing may be left of it. Exit status 1 on a violation; the seed replays bit for bit. From
    500 seeds on, a fault, a message or a change of state that never happened is a failure, too.

    Examples:

    `specdec simulate --seeds 10000 --output report.json`

    `specdec simulate --seed 4711 --trace`

    `specdec simulate capacity --help`
    """
    if ctx.invoked_subcommand is not None:
        return
    if seed is not None:
        raise typer.Exit(_run_one(seed, trace=trace))
    raise typer.Exit(_run_many(first_seed, seeds, max_violations, output))


def _run_one(seed: int, *, trace: bool) -> int:
    from deployments.simulation.campaign import replay

    verdict = replay(seed)
    if trace:
        print("\n".join(verdict.record.lines))
    console = Console(stderr=True, soft_wrap=True)
    if verdict.violation is None:
        console.print(f"seed {seed}: {verdict.num_requests} requests, no violation", markup=False)
        return 0
    console.print(f"seed {seed}: {verdict.violation}", style="red", markup=False)
    return 1


def _run_many(first_seed: int, num_seeds: int, max_violations: int, output: Path | None) -> int:
    from deployments.simulation.campaign import run_seeds

    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    started, cpu_started = time.perf_counter(), time.process_time()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=num_seeds)
        campaign = run_seeds(
            first_seed,
            num_seeds,
            max_violations=max_violations,
            on_seed=lambda so_far: progress.update(task, completed=so_far.num_seeds),
        )
    report = campaign.report(time.perf_counter() - started, time.process_time() - cpu_started)
    if output is not None:
        output.write_text(json.dumps(report, indent=2) + "\n")
    _show(report)
    for failed in campaign.violations:
        _show_violation(failed.seed, failed.violation)
    return 0 if campaign.is_clean else 1


def _show(report: dict[str, Any]) -> None:
    console = Console()
    table = Table("what happened", "how often", title="faults and outcomes")
    for kind in ("faults", "outcomes"):
        for name, count in report[kind].items():
            table.add_row(name, str(count))
    console.print(table)
    console.print(
        f"{report['num_seeds']} seeds, {report['num_requests']} requests, "
        f"{len(report['transitions'])} changes of state, {len(report['messages'])} message types, "
        f"{len(report['violations'])} violations; {report['seeds_per_second']} seeds per second, "
        f"{report['seeds_per_cpu_second']} per second of CPU time"
    )
    for what in ("never_hit", "never_foreseen"):
        if report[what]:
            console.print(f"{what}: {', '.join(report[what])}", style="red", markup=False)


def _show_violation(seed: int, violation: str | None) -> None:
    """Print the violation and the end of its trace, from a replay of the same events."""
    from deployments.simulation.campaign import replay

    console = Console(soft_wrap=True)
    again = replay(seed)
    console.print(f"seed {seed}: {violation}", style="red", markup=False)
    if again.violation != violation:
        console.print(f"it does not replay: {again.violation}", style="red", markup=False)
    for line in again.record.lines[-_SHOWN_LINES:]:
        console.print(line, markup=False, highlight=False)
    console.print(f"all of it: specdec simulate --seed {seed} --trace", markup=False)


@command(simulate_app)
def capacity(options: CapacityOptions) -> None:
    """Predict latency, throughput and utilisation from what steps cost; compare layouts.

    The scheduler is the real one. Replicas take the times that the flags say. The coordinator is
    charged its measured cost per row and message. Measure step times with `specdec bench offline`
    or `specdec eval-draft`.

    Examples:

    `specdec simulate capacity --verify-ms 1:20,8:27,32:38 --draft-ms 4+0.2 --request-rate 2`

    `specdec simulate capacity --verify-ms 25+0.05 --draft-ms 2+0.01 --targets 64 --drafts 32
    --cells 4`

    `specdec simulate capacity --verify-ms 25+0.05 --draft-ms 2+0.01 --targets 3 --drafts 1
    --recommend --target-price 4 --draft-price 1.5`
    """
    from deployments.simulation.capacity_runs import run

    report = run(options)
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=2) + os.linesep)
    _show_capacity(report)


def _show_capacity(report: dict[str, Any]) -> None:
    console = Console()
    if "layouts" in report:
        console.print(_layout_table(report["layouts"]))
        return
    table = Table("figure", "value")
    for name, value in report["figures"].items():
        for key, number in value.items() if isinstance(value, dict) else (("", value),):
            table.add_row(f"{name} {key}".strip(), "-" if number is None else f"{number:,.2f}")
    console.print(table)


def _layout_table(rows: list[dict[str, Any]]) -> Table:
    columns = ("tokens/s", "/device", "TPOT ms", "target", "draft", "cells", "price/h")
    caption = "target, draft: shares of the time that they are busy; cells: that the load needs"
    table = Table(Column("layout", no_wrap=True), *columns, "per 1M tokens", caption=caption)
    for row in rows:
        draft = row["draft_utilisation"]
        cost, tpot = row["cost_per_million_tokens"], row["tpot_ms"]["p50"]
        table.add_row(
            row["layout"],
            f"{row['tokens_per_second']:,.0f}",
            f"{row['tokens_per_second_per_device']:,.0f}",
            "-" if tpot is None else f"{tpot:.1f}",
            f"{row['target_utilisation']:.2f}",
            "-" if draft is None else f"{draft:.2f}",
            str(row["num_cells"]),
            f"{row['price_per_hour']:.2f}",
            "-" if cost is None else f"{cost:.3f}",
        )
    return table
