"""The commands: one a table, and `report`, which writes docs/paper.md from what they stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.paper import measure
from benchmarks.paper import options as flag
from benchmarks.paper.grouping import GroupingOptions
from benchmarks.paper.online import Timer
from benchmarks.paper.options import Fixed, RunOptions, with_run_options
from benchmarks.paper.records import RESULTS
from benchmarks.paper.report import DOCUMENT, write_document
from specdec_core.config import Numerics
from specdec_core.engine import AlgorithmName
from specdec_core.loading.loader import DType

app = typer.Typer(
    help="The tables of arXiv 2510.22876, measured here. Defaults are small; the examples of each "
    "command have real sizes. Without a GPU set OMP_NUM_THREADS to the value of --threads.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_WITH_WINDOW = f"{AlgorithmName.EXSPEC_PADDED},{AlgorithmName.EXSPEC}"
_SPEC_BENCH = "--input spec_bench_240.jsonl"

_OneDType = Annotated[DType, typer.Option("--dtype", help="Of weights and caches.")]
_OneNumerics = Annotated[Numerics, typer.Option("--numerics", help="Of the target.")]
_Many = Annotated[str, typer.Option(help="Separated by commas.")]


def _examples(*lines: str) -> str:
    commands = [f"`python -m benchmarks.paper {line}`" for line in lines]
    return "Examples:\n\n" + "\n\n".join(commands)


@app.command(
    epilog=_examples(
        f"equivalence {_SPEC_BENCH} --sample 64",
        f"equivalence --pair Qwen/Qwen3-8B,Qwen/Qwen3-0.6B --device cuda {_SPEC_BENCH} --sample 240"
        " --dtypes float16,bfloat16",
    )
)
@with_run_options(max_tokens=50, max_prompt_len=1024, batch_sizes="4,8", repeats=Fixed(1))
def equivalence(
    run: RunOptions,
    dtypes: _Many = "bfloat16,float32",
    numerics: _Many = "fast,exact",
) -> None:
    """Table 1: exact and partial match with plain decoding, one sequence at a time."""
    measure.equivalence(run, flag.names(DType, dtypes), flag.names(Numerics, numerics))


@app.command(
    epilog=_examples(
        f"overhead {_SPEC_BENCH} --sample 32 --max-tokens 64",
        f"overhead --pair random-vicuna,recorded-0.7 --device cuda --scale 1 {_SPEC_BENCH} "
        "--sample 100 --max-tokens 128 --batch-sizes 1,2,4,8,16,32",
    )
)
@with_run_options()
def overhead(
    run: RunOptions,
    dtype: _OneDType = DType.BFLOAT16,
    numerics: _OneNumerics = Numerics.FAST,
) -> None:
    """Table 2: seconds by stage, the share of alignment, and the bytes that it moves."""
    measure.overhead(run, dtype, numerics)


@app.command(
    epilog=_examples(
        f"throughput {_SPEC_BENCH} --sample 64 --max-tokens 128",
        "throughput --pair lmsys/vicuna-7b-v1.3,double7/vicuna-68m --device cuda --dtype float16 "
        f"{_SPEC_BENCH} --sample 240 --max-tokens 128",
    )
)
@with_run_options(batch_sizes="1,2,4,8,16,32")
def throughput(
    run: RunOptions,
    dtype: _OneDType = DType.BFLOAT16,
    numerics: _OneNumerics = Numerics.FAST,
) -> None:
    """Table 3: tokens per second by batch size, relative to plain decoding at the same batch."""
    measure.throughput(run, dtype, numerics)


@app.command(epilog=_examples("grouping", "grouping --probabilities 0.3,0.5,0.7,0.9 --window 48"))
def grouping(
    batch_sizes: flag.BatchSizes = "2,4,8,16,32",
    algorithms: flag.Algorithms = _WITH_WINDOW,
    probabilities: Annotated[
        str, typer.Option(help="Of a drafted token to be right, separated by commas.")
    ] = "0.5,0.7,0.9",
    prompts: Annotated[int, typer.Option(help="Sequences.")] = 100,
    max_tokens: flag.MaxTokens = 50,
    spec_tokens: flag.SpecTokens = 5,
    window: Annotated[int, typer.Option(help="W.")] = 50,
    sort_by_length: Annotated[bool, typer.Option(help="Shortest prompts first.")] = True,
    seed: flag.Seed = 0,
    output: flag.Output = RESULTS,
) -> None:
    """Table 4: how many target passes have rows of one length. Needs no weights."""
    options = GroupingOptions(
        num_prompts=prompts,
        max_tokens=max_tokens,
        num_draft_tokens=spec_tokens,
        window=window,
        sort_by_length=sort_by_length,
        seed=seed,
    )
    measure.grouping(
        options,
        flag.names(AlgorithmName, algorithms),
        flag.numbers(batch_sizes),
        flag.fractions(probabilities),
        output,
    )


@app.command(
    epilog=_examples(
        f"window {_SPEC_BENCH} --sample 64 --max-tokens 64 --batch-sizes 8",
        f"window --pair random-qwen3,recorded-0.7 --device cuda --scale 1 {_SPEC_BENCH} "
        "--sample 128 --max-tokens 128 --batch-sizes 16",
    )
)
@with_run_options(sample=16, batch_sizes="4", algorithms=_WITH_WINDOW)
def window(
    run: RunOptions,
    ratios: Annotated[str, typer.Option(help="W / B, separated by commas.")] = "1,2,3,4,6,8",
    dtype: _OneDType = DType.BFLOAT16,
    numerics: _OneNumerics = Numerics.FAST,
) -> None:
    """Table 5: windows from B to 8 B."""
    measure.window(run, dtype, numerics, flag.numbers(ratios))


@app.command(
    epilog=_examples(
        f"online {_SPEC_BENCH} --sample 64 --max-tokens 64 --load 0.7",
        f"online --pair Qwen/Qwen3-8B,Qwen/Qwen3-0.6B --device cuda {_SPEC_BENCH} --sample 240",
    )
)
@with_run_options(sample=16, batch_sizes="2,8", repeats=Fixed(1))
def online(
    run: RunOptions,
    load: Annotated[
        float, typer.Option(help="Arrivals over what exspec completes when all wait.", min=0.01)
    ] = 0.7,
    timer: Annotated[
        Timer | None, typer.Option(help="Of a step; default processor on a CPU, else wall.")
    ] = None,
    dtype: _OneDType = DType.BFLOAT16,
    numerics: _OneNumerics = Numerics.FAST,
) -> None:
    """Table 6: latencies under Poisson arrivals, in virtual time."""
    measure.online(run, dtype, numerics, load, timer)


@app.command(epilog=_examples("report"))
def report(
    results: Annotated[Path, typer.Option(help="Folder of the JSON files.")] = RESULTS,
    document: Annotated[Path, typer.Option(help="The Markdown file to write.")] = DOCUMENT,
) -> None:
    """Write docs/paper.md from the JSON files."""
    write_document(results, document)
    typer.echo(f"wrote {document}")
