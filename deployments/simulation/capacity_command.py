"""The command `specdec simulate capacity` and its flags."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from specdec_core.config import KPolicyName

_VERIFY = "Milliseconds of a target's pass by fed tokens: 1:20,8:27,32:38, or base+per_token."
_DRAFT = "The same of one draft step, by sequences."

Targets = Annotated[int, typer.Option(min=1, help="Target replicas, of all cells.")]
Drafts = Annotated[int, typer.Option(min=0, help="Draft replicas, of all cells.")]
Cells = Annotated[int, typer.Option(min=1, help="Coordinators with a share of the replicas each.")]
VerifyMs = Annotated[str, typer.Option(help=_VERIFY)]
DraftMs = Annotated[str, typer.Option(help=_DRAFT)]
Acceptance = Annotated[
    float, typer.Option(min=0, max=1, help="Chance that a drafted token is right.")
]
SpecTokens = Annotated[int, typer.Option(min=1, max=32, help="Most drafted tokens a round (K).")]
Policy = Annotated[KPolicyName, typer.Option(help="Who chooses K: fixed, or goodput.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Most rows of a pass.")]
Window = Annotated[int | None, typer.Option(min=1, help="Admitted sequences per target.")]
Rate = Annotated[
    float | None, typer.Option(min=0.001, help="Requests per second; else --concurrency.")
]
Burstiness = Annotated[
    float, typer.Option(min=0.01, help="1 is a Poisson process, less comes in bursts.")
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Clients that always wait; default: a batch per target.")
]
TraceFile = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="Lines of time, prompt_len, output_len."),
]
PromptLen = Annotated[int, typer.Option(min=1, help="Mean tokens of a prompt.")]
OutputLen = Annotated[int, typer.Option(min=1, help="Mean tokens of an answer.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Virtual seconds that are measured.")]
WarmUp = Annotated[float, typer.Option(min=0, help="Virtual seconds before, with --concurrency.")]
RowUs = Annotated[float, typer.Option(min=0, help="The coordinator's cost of a row.")]
MessageUs = Annotated[float, typer.Option(min=0, help="Of a lease and its result.")]
EventUs = Annotated[float, typer.Option(min=0, help="Of one request's news.")]
Recommend = Annotated[
    bool, typer.Option("--recommend", help="Compare what these accelerators can be used for.")
]
Price = Annotated[float, typer.Option(min=0, help="Per accelerator and hour.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the traffic.")]
Output = Annotated[Path | None, typer.Option(dir_okay=False, help="The figures, as JSON.")]


def capacity(
    ctx: typer.Context,
    verify_ms: VerifyMs,
    draft_ms: DraftMs,
    targets: Targets = 1,
    drafts: Drafts = 1,
    cells: Cells = 1,
    acceptance: Acceptance = 0.7,
    spec_tokens: SpecTokens = 4,
    spec_policy: Policy = KPolicyName.FIXED,
    batch_size: BatchSize = 8,
    window: Window = None,
    request_rate: Rate = None,
    burstiness: Burstiness = 1.0,
    concurrency: Concurrency = None,
    trace_file: TraceFile = None,
    prompt_len: PromptLen = 128,
    output_len: OutputLen = 128,
    seconds: Seconds = 10.0,
    warm_up: WarmUp = 2.0,
    row_us: RowUs = 15.0,
    message_us: MessageUs = 130.0,
    event_us: EventUs = 14.0,
    recommend: Recommend = False,
    target_price: Price = 1.0,
    draft_price: Price = 1.0,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Predict latency, throughput and utilisation from what steps cost; compare layouts.

    The pool is the real one; replicas take the times that the flags say, and the coordinator is
    charged its measured cost per row and message. Measure step times with `specdec bench offline`
    or `specdec eval-draft`.

    Examples:

    `specdec simulate capacity --verify-ms 1:20,8:27,32:38 --draft-ms 4+0.2 --request-rate 2`

    `specdec simulate capacity --verify-ms 25+0.05 --draft-ms 2+0.01 --targets 64 --drafts 32
    --cells 4`

    `specdec simulate capacity --verify-ms 25+0.05 --draft-ms 2+0.01 --targets 3 --drafts 1
    --recommend --target-price 4 --draft-price 1.5`
    """
    from deployments.simulation.capacity_options import CapacityOptions, run

    report = run(CapacityOptions(**{k: v for k, v in ctx.params.items() if k != "output"}))
    if output is not None:
        output.write_text(json.dumps(report, indent=2) + os.linesep)
    _show(report)


def _show(report: dict[str, Any]) -> None:
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
