"""Whether the K controller ever loses: tokens/s with it, without drafts, and with every fixed K.

For every batch size and acceptance the contestants decode the same prompts in turns. Proposals come
from a recorded plain run, each token right with the cell's acceptance (benchmarks/synthetic.py);
passes and verification are real. What comes out is compared with the recording. An engine lives
through all turns of its cell, as a service does: its first run, in which the controller learns what
passes cost, is told apart.

    python -m benchmarks.no_slowdown --input spec_bench_240.jsonl --output F.json --plot F.png
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from benchmarks.no_slowdown_cells import CONTROLLER, Bench, Cell, Run
from benchmarks.no_slowdown_report import cell_record, cells_table, plot
from benchmarks.synthetic import DrafterKind, record
from benchmarks.synthetic_models import (
    DEMO,
    DEMO_DRAFT,
    ModelOptions,
    load_draft,
    load_target,
    prompts_for,
)
from deployments.progress import cell_progress
from specdec_core import SamplingParams
from specdec_core.models.loading import DType
from specdec_core.models.numerics import Numerics

_TABLE_WIDTH = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Which cells, and how long they may take."""

    batch_sizes: tuple[int, ...]
    acceptances: tuple[float, ...]
    fixed_ks: tuple[int, ...]
    repeats: int
    minutes: float
    min_prompts: int

    @property
    def cells(self) -> list[Cell]:
        return [
            Cell(batch, acceptance, max(batch, self.min_prompts))
            for batch in self.batch_sizes
            for acceptance in self.acceptances
        ]


def main(
    model: Annotated[
        str, typer.Option(help="Demo name, folder, hub id, or random-NAME: random weights.")
    ] = DEMO,
    drafter: Annotated[
        DrafterKind, typer.Option(help="lookup: proposals are free. draft: passes of --draft.")
    ] = DrafterKind.LOOKUP,
    draft: Annotated[str, typer.Option(help="Whose passes drafted tokens cost.")] = DEMO_DRAFT,
    input: Annotated[Path | None, typer.Option(help="Prompts; without it random ids.")] = None,
    batch_sizes: Annotated[str, typer.Option()] = "1,2,4,8,16,32,64",
    acceptances: Annotated[str, typer.Option(help="Chance of a drafted token.")] = "0.1,0.5,0.9",
    fixed_ks: Annotated[str, typer.Option(help="The greatest is the controller's limit.")] = (
        "1,2,4"
    ),
    repeats: Annotated[int, typer.Option(help="Turns of every cell, after the first run.")] = 5,
    minutes: Annotated[
        float, typer.Option(help="Time of the whole sweep: cells make fewer turns, at least one.")
    ] = 14.0,
    max_tokens: Annotated[int, typer.Option(help="Of every answer.")] = 48,
    prompt_len: Annotated[int, typer.Option(help="Prompts keep their last ids.")] = 32,
    min_prompts: Annotated[int, typer.Option(help="Of a cell; larger batches have one each.")] = 2,
    temperature: Annotated[float, typer.Option()] = 0.0,
    top_p: Annotated[float, typer.Option()] = 1.0,
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
    numerics: Annotated[Numerics, typer.Option()] = Numerics.EXACT,
    device: Annotated[str, typer.Option()] = "cpu",
    scale: Annotated[int, typer.Option(help="Divides the shape of a random model.")] = 1,
    threads: Annotated[int, typer.Option()] = 2,
    recording: Annotated[
        Path | None, typer.Option(help="JSON file that keeps the plain run for the next time.")
    ] = None,
    traces: Annotated[
        Path | None, typer.Option(help="Folder for what the controller saw and decided, by cell.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
    picture: Annotated[Path | None, typer.Option("--plot", help="PNG file.")] = None,
) -> None:
    """Tokens/s of the controller over those of plain decoding and of the best fixed K.

    \b
    The whole sweep, in a quarter of an hour:
    python -m benchmarks.no_slowdown --input spec_bench_240.jsonl --output F.json --plot F.png

    \b
    Parts of it, with a draft model that costs what the demo's does:
    python -m benchmarks.no_slowdown --batch-sizes 8,64 --acceptances 0.5 --drafter draft

    \b
    Sizes that have no weights here:
    python -m benchmarks.no_slowdown --model random-tinyllama --drafter draft --batch-sizes 1,8
    """
    settings = {name: str(value) for name, value in locals().items()}
    torch.set_num_threads(threads)
    sweep = Sweep(
        batch_sizes=tuple(map(int, batch_sizes.split(","))),
        acceptances=tuple(map(float, acceptances.split(","))),
        fixed_ks=tuple(map(int, fixed_ks.split(","))),
        repeats=repeats,
        minutes=minutes,
        min_prompts=min_prompts,
    )
    count = max(cell.num_prompts for cell in sweep.cells)
    options = ModelOptions(
        target=model,
        draft=draft,
        dtype=dtype,
        numerics=numerics,
        device=device,
        scale=scale,
        max_len=prompt_len + max_tokens + max(sweep.fixed_ks) + 1,
        max_sequences=count,
    )
    target = load_target(options)
    prompts = prompts_for(options, target.vocab_size, input, count, prompt_len)
    params = SamplingParams(
        temperature=temperature, top_p=top_p, max_tokens=max_tokens, ignore_eos=True
    )
    name = f"{model} {dtype} {numerics} {scale}"
    recorded = record(target, prompts, params, recording, name)
    bench = Bench(target, load_draft(options, drafter), recorded, sweep.fixed_ks, traces)
    records = measure(bench, sweep)
    Console(width=_TABLE_WIDTH).print(cells_table(records))
    if output is not None:
        found = {"settings": settings, **_machine(), "cells": records}
        output.write_text(json.dumps(found, indent=1) + "\n")
    if picture is not None:
        plot(records, picture)


def measure(bench: Bench, sweep: Sweep) -> list[dict[str, Any]]:
    """Every cell as JSON. A cell may use its share of the time that is left."""
    records = []
    deadline = time.monotonic() + 60.0 * sweep.minutes
    cells = sweep.cells
    with cell_progress(len(cells) * sweep.repeats) as report:
        for number, cell in enumerate(cells):
            share_s = (deadline - time.monotonic()) / (len(cells) - number)
            runs = _measure_cell(bench, cell, sweep.repeats, share_s, partial(report, cell.name))
            records.append(cell_record(cell, runs))
    return records


def _measure_cell(
    bench: Bench,
    cell: Cell,
    repeats: int,
    share_s: float,
    report: Callable[[int], None],
) -> dict[str, list[Run]]:
    """Runs of every contestant; the controller's first one stands before its others."""
    with bench.contest(cell) as contest:
        return _take_turns(contest, repeats, share_s, report)


def _take_turns(
    contest: Mapping[str, Callable[[], Run]],
    repeats: int,
    share_s: float,
    report: Callable[[int], None],
) -> dict[str, list[Run]]:
    started = time.monotonic()
    runs: dict[str, list[Run]] = {name: [] for name in contest}
    runs[CONTROLLER].append(contest[CONTROLLER]())
    for turn in range(repeats):
        turn_started = time.monotonic()
        for name, run in contest.items():
            runs[name].append(run())
        report(1)
        now = time.monotonic()
        if now - started + (now - turn_started) > share_s:
            report(repeats - turn - 1)
            break
    return runs


def _machine() -> dict[str, Any]:
    return {
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    typer.run(main)
