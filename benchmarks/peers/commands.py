"""The commands `setup` and `run`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.peers.cells import Axes
from benchmarks.peers.comparison import Comparison
from benchmarks.peers.engines import DRAFT_MODEL, ENGINES, HYBRID, NGRAM, PLAIN
from benchmarks.peers.environments import make_environments
from benchmarks.peers.options import RunOptions
from benchmarks.peers.plot import plot as draw
from benchmarks.peers.progress import turn_progress
from benchmarks.peers.report import cells_table, comparisons_table
from benchmarks.prompts import chat_prompts
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import stage_progress
from specdec_core.config import KPolicyName, Numerics
from specdec_core.errors import InvalidRequestError, SpecdecError
from specdec_core.loading.loader import DType

app = typer.Typer(
    help="specdec beside other engines, each in an environment of its own: the same prompts, "
    "dtype, threads and number of tokens, in turns.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_Venvs = Annotated[Path, typer.Option(help="Folder of the environments, models and logs.")]
_Many = Annotated[str, typer.Option(help="Separated by commas.")]
_Engines = Annotated[str, typer.Option(help=f"Separated by commas; of {', '.join(ENGINES)}.")]

_DEFAULT_ENGINES = "specdec,transformers,vllm,openvino,openvino-q4,llama-cpp,paper"
_SETUP = "`python -m benchmarks.peers setup --venvs ~/peers"
_RUN = (
    "`python -m benchmarks.peers run --venvs ~/peers --input spec_bench_240.jsonl "
    "--paper-checkout ~/spec_dec --llama-cpp ~/llama.cpp"
)


@app.command(epilog=f"Examples:\n\n{_SETUP}`\n\n{_SETUP} --engines transformers,vllm`")
def setup(venvs: _Venvs, engines: _Engines = _DEFAULT_ENGINES) -> None:
    """Make the environments that are missing, with pinned versions, from PyPI (6 GB)."""
    chosen = names(engines)
    with errors_told(), stage_progress() as report:
        unknown = [name for name in chosen if name not in ENGINES]
        if unknown:
            raise InvalidRequestError(f"no engine {unknown[0]!r}; known are: {', '.join(ENGINES)}")
        make_environments([ENGINES[name] for name in chosen], venvs.expanduser(), report)


@app.command(
    epilog="Examples:\n\n"
    f"{_RUN} --sample 16 --repeats 5 --save-result peers.json --plot peers.png`\n\n"
    f"{_RUN} --engines specdec,vllm,vllm-preload --batch-sizes 8`\n\n"
    f"{_RUN} --temperature 0.8 --top-p 0.95`"
)
def run(
    input: Annotated[Path, typer.Option(help="Prompts, as for `specdec generate`.")],
    venvs: _Venvs,
    engines: _Engines = _DEFAULT_ENGINES,
    sample: Annotated[int, typer.Option(help="Prompts, spread over the categories.")] = 16,
    max_tokens: Annotated[int, typer.Option(help="Every answer has exactly as many.")] = 128,
    batch_sizes: _Many = "1,8",
    methods: _Many = f"{PLAIN},{NGRAM},{DRAFT_MODEL},{HYBRID}",
    model: Annotated[str, typer.Option(help="A demo model; OpenVINO knows no other.")] = (
        "smollm2-135m"
    ),
    drafts: Annotated[
        str, typer.Option(help="Separated by commas; `self` is the target as its own draft.")
    ] = "smollm2-135m-draft",
    spec_tokens: Annotated[str, typer.Option(help="K, separated by commas.")] = "4",
    spec_policy: Annotated[
        KPolicyName, typer.Option(help="Who says how much of K specdec drafts.")
    ] = KPolicyName.FIXED,
    numerics: Annotated[Numerics, typer.Option(help="Of specdec's target.")] = Numerics.FAST,
    dtype: Annotated[DType, typer.Option(help="Of weights and caches.")] = DType.BFLOAT16,
    threads: Annotated[int, typer.Option(help="Of every engine.")] = 2,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    repeats: Annotated[int, typer.Option(help="Rounds over all cells, after a warm-up.")] = 5,
    paper_checkout: Annotated[
        Path | None, typer.Option(help="Folder of the paper's public code.")
    ] = None,
    llama_cpp: Annotated[
        Path | None, typer.Option(help="Folder of llama.cpp's sources, built with cmake.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one answer of a runner.")] = 1800.0,
    save_result: Annotated[Path | None, typer.Option(help="All figures, as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="The picture, as PNG.")] = None,
) -> None:
    """Measure every engine that is there, in turns; what is left out is listed with its reason."""
    with errors_told():
        axes = Axes(
            methods=names(methods),
            drafts=names(drafts),
            spec_tokens=numbers(spec_tokens),
            batch_sizes=numbers(batch_sizes),
            temperature=temperature,
        )
        options = RunOptions(
            engines=names(engines),
            axes=axes,
            venvs=venvs.expanduser().resolve(),
            paper_checkout=paper_checkout and paper_checkout.expanduser().resolve(),
            llama_cpp=llama_cpp and llama_cpp.expanduser().resolve(),
            model=model,
            max_tokens=max_tokens,
            repeats=repeats,
            threads=threads,
            dtype=dtype.value,
            numerics=numerics.value,
            spec_policy=spec_policy.value,
            top_p=top_p,
            seed=seed,
            timeout_s=timeout,
            save_result=save_result,
            plot=plot,
        )
        _run(options, input, sample)


def _run(options: RunOptions, input: Path, sample: int) -> None:
    if options.plot is not None:
        check_can_plot()
    comparison = Comparison(options, chat_prompts(options.folder, input, sample))
    with turn_progress(comparison.num_turns) as report:
        found = comparison.measure(report)
    if options.save_result is not None:
        options.save_result.write_text(json.dumps(found, indent=1, default=str) + "\n")
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


def names(text: str) -> tuple[str, ...]:
    """A flag's list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def numbers(text: str) -> tuple[int, ...]:
    """A flag's list of whole numbers. Raises InvalidRequestError."""
    try:
        return tuple(int(name) for name in names(text))
    except ValueError as error:
        raise InvalidRequestError(f"{text!r} is no list of numbers") from error


@contextmanager
def errors_told() -> Iterator[None]:
    """What the caller can put right ends the command with its text alone. A command that is told
    to end does so like one that fails, so that no stopped runner is left behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        yield
    except SpecdecError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
