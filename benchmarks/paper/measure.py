"""What a command does: load each pair, measure its cells under a progress bar, store the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
import typer

from benchmarks.paper import equivalence as equivalence_table
from benchmarks.paper import grouping as grouping_table
from benchmarks.paper import online as online_table
from benchmarks.paper import overhead as overhead_table
from benchmarks.paper import throughput as throughput_table
from benchmarks.paper import window as window_table
from benchmarks.paper.algorithms import PAPER_WINDOW_RATIO, PLAIN
from benchmarks.paper.grouping import Lengths
from benchmarks.paper.options import (
    EquivalenceOptions,
    GroupingRun,
    OnlineOptions,
    RunOptions,
    ThroughputOptions,
    TimedOptions,
    WindowOptions,
)
from benchmarks.paper.pair_spec import PairSpec
from benchmarks.paper.pairs import Pair, PairOptions, load_pair
from benchmarks.paper.records import Row, Run, current_commit, describe_machine, save_run
from benchmarks.paper.report import markdown_of
from benchmarks.paper.sweep import (
    Budget,
    Cell,
    Figures,
    Report,
    cells_by_batch,
    not_run,
    num_decodings,
    sweep,
)
from benchmarks.paper.workload import load_workload
from deployments.cli.progress import cell_progress
from specdec_core.config import Numerics
from specdec_core.errors import NotExactError
from specdec_core.loading.loader import DType

Measure = Callable[[Pair, Report], Iterator[Row]]


def equivalence(run: EquivalenceOptions) -> None:
    groups = cells_by_batch(run.algorithms, run.batch_sizes)
    variants = [(dtype, one) for dtype in run.dtypes for one in run.numerics]
    budget = Budget(run.budget_s)

    def compare(pair: Pair, report: Report) -> Iterator[Row]:
        figures = equivalence_table.Comparison(pair.reference()).figures
        return sweep(pair, groups, figures, repeats=1, budget=budget, report=report)

    def rows(spec: PairSpec, report: Report) -> Iterator[Row]:
        for dtype, one in variants:
            where = {"dtype": dtype.value, "numerics": one.value}
            try:
                measured = compare(_load(run, spec, dtype, one), report)
            except NotExactError as error:
                refused = [not_run(cell, str(error)) for group in groups for cell in group]
                measured = iter(refused)
            yield from ({**where, **row} for row in measured)

    for spec in run.pairs:
        with _progress(len(variants) * num_decodings(groups, 1)) as report:
            _store("equivalence", run.output, _header(run, spec, {}), rows(spec, report))


def overhead(run: TimedOptions) -> None:
    groups = cells_by_batch(run.algorithms, run.batch_sizes)
    measure = partial(_sweep, run, Budget(run.budget_s), groups, overhead_table.figures)
    _each_pair("overhead", run, measure, num_decodings(groups, run.repeats))


def throughput(run: ThroughputOptions) -> None:
    groups = cells_by_batch((PLAIN, *run.algorithms), run.batch_sizes)
    measure = partial(_sweep, run, Budget(run.budget_s), groups, throughput_table.figures)
    _each_pair("throughput", run, measure, num_decodings(groups, run.repeats))


def window(run: WindowOptions) -> None:
    groups = window_table.cells(run.algorithms, run.batch_sizes, run.ratios)
    measure = partial(_sweep, run, Budget(run.budget_s), groups, window_table.figures)
    count = num_decodings(groups, run.repeats)
    _each_pair("window", run, measure, count, window_ratio=max(run.ratios))


def online(run: OnlineOptions) -> None:
    budget = Budget(run.budget_s)

    def rows(pair: Pair, report: Report) -> Iterator[Row]:
        chosen = run.timer or online_table.default_timer(pair.target.device)
        for batch_size in run.batch_sizes:
            measured = online_table.measure(
                pair,
                run.algorithms,
                batch_size,
                run.load,
                chosen,
                seed=run.seed,
                budget=budget,
                report=report,
            )
            yield from ({**row, "timer": chosen.value, "load": run.load} for row in measured)

    count = len(run.batch_sizes) * (len(run.algorithms) + 1)
    _each_pair("online", run, rows, count)


def grouping(run: GroupingRun) -> None:
    cells = [
        (algorithm, batch_size, lengths, probability)
        for lengths in Lengths
        for probability in run.probabilities
        for batch_size in run.batch_sizes
        for algorithm in run.algorithms
    ]

    def rows(report: Report) -> Iterator[Row]:
        for cell in cells:
            yield grouping_table.measure(run.sizes, *cell)
            report(f"{cell[0]} B={cell[1]} {cell[2]} lengths")

    settings = run.sizes.settings
    header = Run(name="arranged answers", commit=current_commit(), machine={}, settings=settings)
    with _progress(len(cells)) as report:
        _store("grouping", run.output, header, rows(report))


def _sweep(
    run: RunOptions,
    budget: Budget,
    groups: Sequence[Sequence[Cell]],
    figures: Figures,
    pair: Pair,
    report: Report,
) -> Iterator[Row]:
    return sweep(pair, groups, figures, repeats=run.repeats, budget=budget, report=report)


def _each_pair(
    table: str,
    run: TimedOptions,
    measure: Measure,
    num_reports: int,
    *,
    window_ratio: int = PAPER_WINDOW_RATIO,
) -> None:
    for spec in run.pairs:
        settings = {"dtype": run.dtype.value, "numerics": run.numerics.value}
        header = _header(run, spec, settings)
        pair = _load(run, spec, run.dtype, run.numerics, window_ratio)
        with _progress(num_reports) as report:
            _store(table, run.output, header, measure(pair, report))


def _load(
    run: RunOptions,
    spec: PairSpec,
    dtype: DType,
    numerics: Numerics,
    window_ratio: int = PAPER_WINDOW_RATIO,
) -> Pair:
    torch.set_num_threads(run.threads or os.cpu_count() or 1)
    workload = load_workload(
        spec,
        run.input,
        sample=run.sample,
        max_tokens=run.max_tokens,
        max_prompt_len=run.max_prompt_len,
        seed=run.seed,
    )
    options = PairOptions(
        device=run.device,
        dtype=dtype,
        numerics=numerics,
        max_sequences=min(window_ratio * max(run.batch_sizes), len(workload.prompts)),
        num_draft_tokens=run.spec_tokens,
        scale=run.scale,
        seed=run.seed,
    )
    return load_pair(spec, workload, options)


def _header(run: RunOptions, spec: PairSpec, settings: dict[str, str]) -> Run:
    """The run, without its rows yet."""
    torch.set_num_threads(run.threads or os.cpu_count() or 1)
    machine = describe_machine(run.device)
    is_cpu = machine["device"].startswith("CPU")
    is_scaled = spec.is_random and run.scale > 1
    parts = [spec.name + (f" (sizes / {run.scale})" if is_scaled else "")]
    parts += [settings["dtype"]] if "dtype" in settings else []
    return Run(
        name=", ".join([*parts, "CPU" if is_cpu else "GPU"]),
        commit=current_commit(),
        machine=machine,
        settings={**run.settings, **settings},
    )


@contextmanager
def _progress(num_reports: int) -> Iterator[Report]:
    with cell_progress(num_reports) as bar:
        yield lambda name: bar(name, 1)


def _store(table: str, folder: Path, run: Run, rows: Iterable[Row]) -> None:
    """Save after every row: a run that is interrupted keeps what it has."""
    for row in rows:
        run.rows.append(row)
        save_run(folder, table, run)
    typer.echo(markdown_of(table, run))
