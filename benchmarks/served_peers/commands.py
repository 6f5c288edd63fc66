"""The commands `setup`, `run` and `report`."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer
from rich.console import Console

from benchmarks.harness.commands import command_line, turn_progress, write_json
from benchmarks.peers.engines import ENGINES as OFFLINE_ENGINES
from benchmarks.peers.environments import make_environments
from benchmarks.served_peers.engines import SERVERS
from benchmarks.served_peers.measurement import Measurement
from benchmarks.served_peers.options import ReportOptions, RunOptions, SetupOptions, ShowOptions
from benchmarks.served_peers.plot import plot as draw
from benchmarks.served_peers.prompts import Prompts
from benchmarks.served_peers.report import markdown as as_markdown
from benchmarks.served_peers.report import sheets, table
from deployments.cli.command import command
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import stage_progress
from specdec_core.errors import SpecdecError

app = command_line(
    "`specdec serve` as it ships next to `vllm serve` and `llama-server`: one HTTP client, "
    "the same requests, one engine at a time, in turns."
)
_LOG_WIDTH = 140


@command(app)
def setup(options: SetupOptions) -> None:
    """Make what is missing: vLLM's environment (6 GB, from PyPI) and llama.cpp's GGUF files.

    Example: `python -m benchmarks.served_peers setup --venvs ~/peers --llama-cpp ~/llama.cpp`
    """
    site = options.site
    with stage_progress() as report:
        make_environments([OFFLINE_ENGINES["vllm"]], site.venvs, report)
    if site.llama_cpp is None:
        typer.echo("llama-server: skipped, no --llama-cpp")
        return
    for name in ("llama-bf16", "llama-q4"):
        typer.echo(f"{name}: {' '.join(SERVERS[name].command(site))}")


@command(app)
def run(options: RunOptions) -> None:
    """Measure every engine that is there; one that is not is named with the reason and skipped.

    Examples:

    `python -m benchmarks.served_peers run --venvs ~/peers --llama-cpp ~/llama.cpp
    --save-result served_peers.json --plot served_peers.png`

    `python -m benchmarks.served_peers run --venvs ~/peers --engines specdec,engine --pairs 10`

    `python -m benchmarks.served_peers run --venvs ~/peers --engines specdec --rounds 1
    --prompts short --streams 1,8 --first-requests 0 --pair-prompts copying,edit --spec-tokens 4
    --off-pairs`
    """
    options = options.settled()
    if options.show.plot is not None:
        check_can_plot()
    with turn_progress(options.num_loads) as progress:
        measurement = Measurement(
            options,
            Prompts(options.input),
            progress,
            lambda: write_json(measurement.found(), options.save_result),
        )
        measurement.run()
    found = measurement.found()
    _show(found, options.show)
    if not found["readings"]:
        raise SpecdecError("nothing was measured")


@command(app)
def report(options: ReportOptions) -> None:
    """Print the tables of a stored result, and draw it.

    Example: `python -m benchmarks.served_peers report served_peers.json --markdown`
    """
    _show(json.loads(options.result.read_text()), options.show)


def _show(found: dict[str, Any], options: ShowOptions) -> None:
    console = Console(width=None if sys.stdout.isatty() else _LOG_WIDTH)
    if options.markdown:
        typer.echo(as_markdown(found))
    else:
        for sheet in sheets(found):
            console.print(table(sheet))
    for entry in found["not_run"]:
        told = f"not run: {entry['engine']}: {entry['reason']}"
        Console(stderr=True).print(told, style="yellow", markup=False)
    if options.plot is not None and found["readings"]:
        draw(found, options.plot)
