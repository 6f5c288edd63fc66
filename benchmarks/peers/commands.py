"""The commands `setup` and `run`."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from benchmarks.harness.commands import command_line, turn_progress, write_json
from benchmarks.peers.comparison import Comparison
from benchmarks.peers.environments import make_environments
from benchmarks.peers.options import RunOptions, SetupOptions
from benchmarks.peers.plot import plot as draw
from benchmarks.peers.report import cells_table, comparisons_table
from benchmarks.prompts import chat_prompts
from deployments.cli.command import command
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import stage_progress
from specdec_core.errors import SpecdecError

app = command_line(
    "specdec beside other engines, each in an environment of its own: the same prompts, "
    "dtype, threads and number of tokens, in turns."
)


@command(app)
def setup(options: SetupOptions) -> None:
    """Make the environments that are missing, with pinned versions, from PyPI (6 GB).

    Example: `python -m benchmarks.peers setup --venvs ~/peers --engines transformers,vllm`
    """
    with stage_progress() as report:
        make_environments(options.specs, options.venvs, report)


@command(app)
def run(options: RunOptions) -> None:
    """Measure every engine that is there, in turns; what is left out is listed with its reason.

    Examples:

    `python -m benchmarks.peers run --venvs ~/peers --input spec_bench_240.jsonl
    --paper-checkout ~/spec_dec --llama-cpp ~/llama.cpp --save-result peers.json --plot peers.png`

    `python -m benchmarks.peers run --venvs ~/peers --input spec_bench_240.jsonl
    --engines specdec,vllm,vllm-preload --batch-sizes 8 --temperature 0.8 --top-p 0.95`
    """
    if options.plot is not None:
        check_can_plot()
    prompts = chat_prompts(options.folder, options.input, options.sample)
    comparison = Comparison(options, prompts)
    with turn_progress(comparison.num_turns) as report:
        found = comparison.measure(report)
    write_json(found, options.save_result)
    if options.plot is not None and found["cells"]:
        draw(found["cells"], options.plot)
    _show(found)


def _show(found: dict[str, Any]) -> None:
    console = Console()
    console.print(cells_table(found["cells"]))
    console.print(comparisons_table(found["comparisons"]))
    for entry in found["not_run"]:
        console.print(f"not run: {entry['name']}: {entry['reason']}", style="yellow", markup=False)
    if not found["cells"]:
        raise SpecdecError("nothing was measured")
