"""The full audit: every prompt in every cell of `specdec verify`, resumable, cell by cell.

    python -m benchmarks.audit --input spec_bench_240.jsonl
    python -m benchmarks.audit --input spec_bench_240.jsonl --dtypes bfloat16 --minutes 60
    python -m benchmarks.audit --input prompts.jsonl --sample 4 --max-tokens 1024 --batch-sizes 8

Takes the flags of `specdec verify`; DEFAULTS are what it uses where none are given. A finished cell
is a line of the result file, with the commit; a run that is started again goes on behind the lines
of the same engine and flags. Cells come in a drawn order, point by point, so that an unfinished
audit is a sample of the whole.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.audit_log import ReferenceStore, ResultLog, engine_version
from benchmarks.transformers_reference import compare_with_generate
from deployments.cli.main import app as specdec
from deployments.cli.progress import cell_progress
from deployments.cli.verify.audit import Audit
from deployments.cli.verify.cells import Task, plan
from deployments.cli.verify.options import VerifyOptions
from deployments.cli.verify.report import cell_record
from deployments.cli.verify.setup import Prompts, load_models, read_prompts
from deployments.config.flags import assembled, values_of
from deployments.demo.models import resolve_model
from specdec_core.config import DType

DEFAULTS = {
    "--numerics": "exact",
    "--sample": "64",
    "--max-tokens": "128",
    "--batch-sizes": "1,4,8,16",
    "--spec-tokens": "1,4,8",
    "--cells": "all",
}
OUTPUT = Path(__file__).parent / "results" / "audit.jsonl"
GENERATE = "plain decoding beside generate()"
"""Only greedy and in float32: the name of its line."""
_NOT_SETTINGS = (
    *("json", "algorithms", "batch_sizes", "spec_tokens", "spec_methods", "temperatures"),
    *("cells", "cell_seed", "grid_sample", "compare_fast", "kv_cache_tokens"),
)
"""Options that choose cells, which are named one by one, or that change no answer."""


app = typer.Typer(add_completion=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def main(
    ctx: typer.Context,
    output: Annotated[Path, typer.Option(help="JSON lines, one per finished cell.")] = OUTPUT,
    dtypes: Annotated[str, typer.Option(help="Separated by commas.")] = "bfloat16,float32",
    minutes: Annotated[float, typer.Option(help="Start no cell after so many.")] = float("inf"),
) -> None:
    """Run the cells that are not done yet; exit 1 if any cell of these flags failed."""
    deadline = time.monotonic() + 60 * minutes
    log = ResultLog(output, engine_version())
    flags = [[*ctx.args, "--dtype", name] for name in dtypes.split(",")]
    matrices = [Matrix(verify_options(words), log) for words in flags]
    for matrix in matrices:
        matrix.run(deadline)
    raise typer.Exit(_summarise(matrices))


def verify_options(flags: Sequence[str]) -> VerifyOptions:
    """What `specdec verify` makes of the defaults and the flags behind them."""
    defaults = [word for flag in DEFAULTS.items() for word in flag]
    group: Any = typer.main.get_command(specdec)
    context = group.commands["verify"].make_context("verify", [*defaults, *flags])
    return assembled(VerifyOptions, context.params)


class Matrix:
    """All cells of one set of flags, those that are done included."""

    def __init__(self, options: VerifyOptions, log: ResultLog) -> None:
        self._options = options
        self._log = log
        self._prompts = read_prompts(options)
        tasks = _in_drawn_order(_tasks(options, self._prompts))
        self._tasks = {task.cell.name: task for task in tasks}
        self._settings = _settings(options)

    @property
    def names(self) -> list[str]:
        is_compared = (
            self._options.loading.dtype is DType.FLOAT32 and 0.0 in self._options.grid.temperatures
        )
        return [*([GENERATE] if is_compared else []), *self._tasks]

    def rows(self) -> list[tuple[str, dict[str, Any] | None]]:
        """Every cell with its line, None for one that is not done."""
        dtype = self._options.loading.dtype
        return [(f"{dtype} {name}", self._row(name)) for name in self.names]

    def _row(self, name: str) -> dict[str, Any] | None:
        return self._log.find(name, self._settings_of(name))

    def _settings_of(self, name: str) -> dict[str, Any]:
        """A cell that was run with other prompts is another one."""
        prompts = self._tasks[name].prompts if name in self._tasks else ()
        is_partial = 0 < len(prompts) < len(self._prompts.lines)
        return {**self._settings, "prompts": list(prompts) if is_partial else "all"}

    def run(self, deadline: float) -> None:
        """Run what is not done, until all is or the deadline has passed."""
        todo = [name for name in self.names if self._row(name) is None]
        if not todo or time.monotonic() > deadline:
            return
        models = load_models(self._options, self._prompts)
        store = ReferenceStore(self._log.version, models.target.fingerprint, self._settings)
        num_answers = sum(len(self._tasks[name].prompts) for name in todo if name in self._tasks)
        with cell_progress(num_answers) as report:
            audit = models.audit(models.target, self._prompts, report)
            audit.references.update(store.load())
            for name in todo:
                if time.monotonic() > deadline:
                    return
                if name == GENERATE:
                    result = self._beside_generate(audit)
                else:
                    result = cell_record(audit.run(self._tasks[name]))
                result["fingerprint"] = models.target.fingerprint
                self._log.add(name, self._settings_of(name), result)
                store.save(audit.references)

    def _beside_generate(self, audit: Audit) -> dict[str, Any]:
        """Greedy plain decoding against transformers."""
        indices = range(len(self._prompts.lines))
        answers = [audit.reference(index, 0.0) for index in indices]
        requests = [self._prompts.request(index, 0.0) for index in indices]
        found = compare_with_generate(resolve_model(self._options.model), requests, answers)
        return {
            "num_requests": len(requests),
            "num_equal": len(requests) - len(found),
            "differences": [asdict(difference) for difference in found],
            "failures": [f"{len(found)} of {len(requests)} answers differ"] if found else [],
        }


def _tasks(options: VerifyOptions, prompts: Prompts) -> list[Task]:
    return plan(
        options.grid,
        len(prompts.lines),
        cells=options.cells,
        num_in_every_cell=options.grid_sample,
        seed=options.cell_seed,
    )


def _in_drawn_order(tasks: Sequence[Task]) -> list[Task]:
    """Points in a drawn order, all algorithms of a point behind each other."""
    points = list(dict.fromkeys(task.cell.point for task in tasks))
    drawn = random.Random(0).sample(points, len(points))
    return sorted(tasks, key=lambda task: drawn.index(task.cell.point))


def _settings(options: VerifyOptions) -> dict[str, Any]:
    """What else an answer depends on; the file by its content."""
    settings = {key: value for key, value in values_of(options).items() if key not in _NOT_SETTINGS}
    digest = hashlib.sha256(options.prompts.input.read_bytes()).hexdigest()[:12]
    template = options.loading.chat_template
    return {
        **settings,
        "input": f"{options.prompts.input.name} {digest}",
        "chat_template": template and template.read_text(encoding="utf-8"),
    }


def _summarise(matrices: Sequence[Matrix]) -> int:
    """Print what was done, what was not, what failed; returns the exit status."""
    console = Console(soft_wrap=True, highlight=False)
    rows = [row for matrix in matrices for row in matrix.rows()]
    failed = [(name, row) for name, row in rows if row is not None and row["failures"]]
    missing = [name for name, row in rows if row is None]
    for name in missing:
        console.print(f"not run: {name}")
    for name, row in failed:
        console.print(f"{name}: {'; '.join(row['failures'])}", style="red")
    console.print(f"{len(rows) - len(missing)} of {len(rows)} cells done, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    app()
