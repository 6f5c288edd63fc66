"""Whether the K controller ever loses: tokens/s with it, without drafts, and with every fixed K.

Without drafts means two things: plain decoding, and the controller's engine with speculation off.

For every batch size and acceptance the contestants decode the same prompts in turns. Proposals come
from a recorded plain run, each token right with the cell's acceptance (benchmarks/synthetic.py);
passes and verification are real. What comes out is compared with the recording. An engine lives
through all turns of its cell, as a service does: its first run, in which the controller learns what
passes cost, is told apart.

    python -m benchmarks.no_slowdown --input spec_bench_240.jsonl --output F.json --plot F.png

With `--dataset-name copying` the prompts are chats with text to copy, and prompt lookup itself
makes the proposals. Speeds then count from an answer's first token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from benchmarks.harness.commands import write_json
from benchmarks.no_slowdown_cells import CONTROLLER, Bench, Cell, Run
from benchmarks.no_slowdown_report import cell_record, cells_table, plot
from benchmarks.synthetic import DrafterKind, record
from benchmarks.synthetic_models import (
    DEMO,
    DEMO_DRAFT,
    RANDOM,
    ModelOptions,
    load_draft,
    load_target,
    prompts_for,
)
from deployments.cli.bench.names import DatasetName
from deployments.cli.bench.prompts import COPYING_FILE
from deployments.cli.progress import cell_progress
from deployments.demo.models import resolve_model
from deployments.text.tokenizer import end_token_ids
from specdec_core import SamplingParams
from specdec_core.config import KPolicyName, Numerics, default_draft_tokens
from specdec_core.loading.loader import DType

_TABLE_WIDTH = 130
_PROMPT_LEN = 32
_COPYING_LEN = 768
"""Token IDs that every prompt of the set has at most."""


class Dataset(StrEnum):
    """Prompts with real proposals."""

    COPYING = DatasetName.COPYING.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Which cells, and how long they may take."""

    batch_sizes: tuple[int, ...]
    acceptances: tuple[float | None, ...]
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
    dataset_name: Annotated[
        Dataset | None, typer.Option(help="copying: chats with text to copy, and real proposals.")
    ] = None,
    category: Annotated[
        str | None, typer.Option(help="Category of the data set.", show_default="all")
    ] = None,
    batch_sizes: Annotated[str, typer.Option()] = "1,2,4,8,16,32,64",
    acceptances: Annotated[str, typer.Option(help="Chance of a drafted token.")] = "0.1,0.5,0.9",
    spec_tokens: Annotated[
        int | None, typer.Option(help="Maximum K of the controller.", show_default="as shipped")
    ] = None,
    fixed_ks: Annotated[
        str, typer.Option(help="Separated by commas.", show_default="1, 2, 4 and --spec-tokens")
    ] = "",
    repeats: Annotated[int, typer.Option(help="Turns of every cell, after the first run.")] = 5,
    minutes: Annotated[
        float, typer.Option(help="Time of the whole sweep: cells make fewer turns, at least one.")
    ] = 14.0,
    max_tokens: Annotated[int, typer.Option(help="Of every answer.")] = 48,
    prompt_len: Annotated[
        int | None,
        typer.Option(
            help="Token IDs kept of each prompt, the last ones.",
            show_default="32; with a data set up to 768",
        ),
    ] = None,
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
    Edits of a text, with proposals of prompt lookup:
    python -m benchmarks.no_slowdown --dataset-name copying --category edit --batch-sizes 1,8 \
        --max-tokens 160 --min-prompts 8

    \b
    Sizes that have no weights here:
    python -m benchmarks.no_slowdown --model random-tinyllama --drafter draft --batch-sizes 1,8
    """
    settings = {name: str(value) for name, value in locals().items()}
    torch.set_num_threads(threads)
    copies = dataset_name is Dataset.COPYING
    if copies and (input is not None or drafter is DrafterKind.DRAFT or model.startswith(RANDOM)):
        raise typer.BadParameter(
            "--dataset-name copying takes neither --input nor --drafter draft nor random weights"
        )
    has_gpu = device.startswith("cuda")
    shipped_k = default_draft_tokens(KPolicyName.GOODPUT, has_gpu=has_gpu)
    max_k = shipped_k if spec_tokens is None else spec_tokens
    prompt_len = prompt_len or (_COPYING_LEN if copies else _PROMPT_LEN)
    sweep = Sweep(
        batch_sizes=tuple(map(int, batch_sizes.split(","))),
        acceptances=(None,) if copies else tuple(map(float, acceptances.split(","))),
        fixed_ks=tuple(map(int, fixed_ks.split(",")))
        if fixed_ks
        else tuple(sorted({1, 2, 4, max_k})),
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
        max_len=prompt_len + max_tokens + max(max_k, *sweep.fixed_ks) + 1,
        max_sequences=count,
    )
    target = load_target(options)
    file = COPYING_FILE if copies else input
    prompts = prompts_for(options, target.vocab_size, file, count, prompt_len, category)
    if len(prompts) < count:
        raise typer.BadParameter(
            f"{len(prompts)} prompts, a cell needs {count}: lower --batch-sizes or --min-prompts"
        )
    params = SamplingParams(
        temperature=temperature, top_p=top_p, max_tokens=max_tokens, ignore_eos=not copies
    )
    name = f"{model} {dtype} {numerics} {scale}"
    ends = end_token_ids(Path(resolve_model(model))) if copies else frozenset[int]()
    recorded = record(target, prompts, params, recording, name, ends)
    bench = Bench(target, load_draft(options, drafter), recorded, sweep.fixed_ks, max_k, traces)
    records = measure(bench, sweep)
    Console(width=_TABLE_WIDTH).print(cells_table(records))
    write_json({"settings": settings, **_machine(), "cells": records}, output)
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
