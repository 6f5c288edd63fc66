"""`specdec verify`: compare the token IDs of every algorithm with those of plain decoding.

As for `specdec generate`, each line is one request. The flags apply to every line unchanged, unless
the line sets its own. Models are loaded once for all cells.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.console import Console

from deployments.cli.progress import cell_progress
from deployments.cli.verify.audit import Audit, CellResult
from deployments.cli.verify.cells import Task, plan
from deployments.cli.verify.options import VerifyOptions
from deployments.cli.verify.report import (
    acceptance_ratio,
    cell_record,
    pooled_acceptance_length,
    print_cells,
    print_differences,
    print_failures,
    print_summary,
    wide_console,
)
from deployments.cli.verify.setup import Models, Prompts, load_models, read_prompts
from deployments.config.flags import values_of
from specdec_core.errors import SpecdecError


def run(options: VerifyOptions) -> None:
    """Audit the model. Raises SpecdecError if a cell fails."""
    prompts = read_prompts(options)
    tasks = plan(
        options.grid,
        len(prompts.lines),
        cells=options.cells,
        num_in_every_cell=options.grid_sample,
        seed=options.cell_seed,
    )
    models = load_models(options, prompts)
    console = wide_console()
    console.print(f"{models.target.name}: {models.target.fingerprint}", markup=False)
    runs = _run(models, prompts, tasks)
    _print(console, runs)
    if options.json is not None:
        record = _record(prompts, models, runs)
        options.json.write_text(json.dumps(record, indent=1, default=str) + "\n")
    failed = [bool(result.failures) for run in runs for result in run.results]
    if any(failed):
        raise SpecdecError(f"{sum(failed)} of {len(failed)} cells failed")
    console.print(f"{len(failed)} cells passed", style="green")


class Run(NamedTuple):
    """Results of all cells in one numerics."""

    audit: Audit
    results: list[CellResult]


def _run(models: Models, prompts: Prompts, tasks: Sequence[Task]) -> list[Run]:
    """Run the cells in the requested numerics, then in fast numerics for comparison."""
    targets = [target for target in (models.target, models.fast_target) if target is not None]
    references = {(p, task.cell.point.temperature) for task in tasks for p in task.prompts}
    num_answers = len(references) + sum(len(task.prompts) for task in tasks)
    with cell_progress(num_answers * len(targets)) as report:
        audits = [models.audit(target, prompts, report) for target in targets]
        return [Run(audit, [audit.run(task) for task in tasks]) for audit in audits]


def _print(console: Console, runs: Sequence[Run]) -> None:
    first, *others = runs
    fast = [result for run in others for result in run.results]
    for run in runs:
        speed = run.audit.reference_speed.tokens_per_second
        name = f"reference ({run.audit.numerics}): plain decoding, one sequence at a time"
        console.print(f"{name}, {speed:.1f} tokens/s")
    print_cells(console, first.results, fast)
    print_differences(console, [*first.results, *fast])
    print_summary(console, first.results, fast)
    print_failures(console, [*first.results, *fast])


def _record(prompts: Prompts, models: Models, runs: Sequence[Run]) -> dict[str, Any]:
    first, *others = runs
    return {
        "model": models.target.name,
        "fingerprint": models.target.fingerprint,
        "settings": values_of(prompts.options),
        "ids": [line.output_id for line in prompts.lines],
        "holds": not any(result.failures for run in runs for result in run.results),
        "runs": [
            {
                "numerics": run.audit.numerics,
                "reference": asdict(run.audit.reference_speed),
                "cells": [cell_record(result) for result in run.results],
                "mean_acceptance_length": pooled_acceptance_length(run.results),
            }
            for run in runs
        ],
        "acceptance_ratio": acceptance_ratio(first.results, others[0].results) if others else None,
    }
