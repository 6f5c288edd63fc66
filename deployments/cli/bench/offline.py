"""`specdec bench offline`: measure how fast the engine decodes a file of prompts, cell by cell.

A cell is an algorithm with a draft, a K and a batch size. The models are loaded once. Every run has
its own engine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from rich.console import Console

from deployments.cli.bench.offline_options import BenchOfflineOptions
from deployments.cli.bench.offline_plot import plot
from deployments.cli.bench.offline_report import CellRuns, cell_records, cells_table
from deployments.cli.bench.offline_runs import run_cell
from deployments.cli.bench.roofline import measure_roofline
from deployments.cli.generate.prompt_text import line_request
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import cell_progress
from deployments.config.flags import values_of
from specdec_core.loading.loader import LoadedPair
from specdec_core.request import Request


def run(options: BenchOfflineOptions) -> None:
    """Measure the cells, print a table and write the requested files."""
    if options.plot is not None:
        check_can_plot()
    lines = options.prompts.read()
    text = options.loading.load_text(options.model)
    is_raw = options.prompts.raw_prompt
    requests = [line_request(text, line, options.sampling, is_raw=is_raw) for line in lines]
    draft = options.draft if options.uses_draft_model else None
    models = options.loading.load_models(options.model, draft)
    roofline = measure_roofline(models.target.model)
    records = cell_records(_measure(options, models, requests), text.decode)
    Console().print(cells_table(records))
    Console().print(str(roofline), highlight=False)
    found = {"settings": values_of(options), **_circumstances(models), "cells": records}
    found["roofline"] = asdict(roofline)
    if options.save_result is not None:
        options.save_result.write_text(json.dumps(found, indent=2, default=str) + "\n")
    if options.plot is not None:
        plot(records, options.plot)


def _measure(
    options: BenchOfflineOptions, models: LoadedPair, requests: Sequence[Request]
) -> list[CellRuns]:
    """Warm up every cell with one batch, then run all cells in turns, `repeat` times.

    Every second turn runs backwards, so that no cell is always the first.
    """
    measured = [CellRuns(cell, []) for cell in options.cells]
    sizes = [min(cell.point.batch_size, len(requests)) for cell in options.cells]
    total = sum(sizes) + options.repeat * len(measured) * len(requests)
    with cell_progress(total) as report:
        for (cell, _), size in zip(measured, sizes, strict=True):
            config = options.scheduler_config(cell, size)
            told = partial(report, f"{cell.name}, warm-up")
            run_cell(models, cell, config, requests[:size], told)
        for number in range(1, options.repeat + 1):
            for cell, runs in measured if number % 2 else reversed(measured):
                config = options.scheduler_config(cell, len(requests))
                told = partial(report, f"{cell.name}, run {number}")
                runs.append(run_cell(models, cell, config, requests, told))
    return measured


def _circumstances(models: LoadedPair) -> dict[str, Any]:
    """Return further conditions that affect the speed."""
    return {
        "fingerprint": models.target.fingerprint,
        "torch_threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
    }
