"""The commands: one a table, and `report`, which writes docs/paper.md from what they stored."""

from __future__ import annotations

import typer

from benchmarks.harness.commands import command_line
from benchmarks.paper import measure
from benchmarks.paper.options import (
    EquivalenceOptions,
    GroupingRun,
    OnlineOptions,
    ReportOptions,
    ThroughputOptions,
    TimedOptions,
    WindowOptions,
)
from benchmarks.paper.report import write_document
from deployments.cli.command import command

app = command_line(
    "The tables of arXiv 2510.22876, measured here. Defaults are small; the examples of each "
    "command have real sizes. Without a GPU set OMP_NUM_THREADS to the value of --threads."
)


@command(app)
def equivalence(options: EquivalenceOptions) -> None:
    """Table 1: exact and partial match with plain decoding, one sequence at a time.

    Examples:

    `python -m benchmarks.paper equivalence --input spec_bench_240.jsonl --sample 64`

    `python -m benchmarks.paper equivalence --pair Qwen/Qwen3-8B,Qwen/Qwen3-0.6B --device cuda
    --input spec_bench_240.jsonl --sample 240 --dtypes float16,bfloat16`
    """
    measure.equivalence(options)


@command(app)
def overhead(options: TimedOptions) -> None:
    """Table 2: seconds by stage, the share of alignment, and the bytes that it moves.

    Examples:

    `python -m benchmarks.paper overhead --input spec_bench_240.jsonl --sample 32 --max-tokens 64`

    `python -m benchmarks.paper overhead --pair random-vicuna,recorded-0.7 --device cuda --scale 1
    --input spec_bench_240.jsonl --sample 100 --max-tokens 128 --batch-sizes 1,2,4,8,16,32`
    """
    measure.overhead(options)


@command(app)
def throughput(options: ThroughputOptions) -> None:
    """Table 3: tokens per second by batch size, relative to plain decoding at the same batch.

    Examples:

    `python -m benchmarks.paper throughput --input spec_bench_240.jsonl --sample 64
    --max-tokens 128`

    `python -m benchmarks.paper throughput --pair lmsys/vicuna-7b-v1.3,double7/vicuna-68m
    --device cuda --dtype float16 --input spec_bench_240.jsonl --sample 240 --max-tokens 128`
    """
    measure.throughput(options)


@command(app)
def grouping(options: GroupingRun) -> None:
    """Table 4: how many target passes have rows of one length. Needs no weights.

    Examples:

    `python -m benchmarks.paper grouping`

    `python -m benchmarks.paper grouping --probabilities 0.3,0.5,0.7,0.9 --window 48`
    """
    measure.grouping(options)


@command(app)
def window(options: WindowOptions) -> None:
    """Table 5: windows from B to 8 B.

    Examples:

    `python -m benchmarks.paper window --input spec_bench_240.jsonl --sample 64 --max-tokens 64
    --batch-sizes 8`

    `python -m benchmarks.paper window --pair random-qwen3,recorded-0.7 --device cuda --scale 1
    --input spec_bench_240.jsonl --sample 128 --max-tokens 128 --batch-sizes 16`
    """
    measure.window(options)


@command(app)
def online(options: OnlineOptions) -> None:
    """Table 6: latencies under Poisson arrivals, in virtual time.

    Examples:

    `python -m benchmarks.paper online --input spec_bench_240.jsonl --sample 64 --max-tokens 64
    --load 0.7`

    `python -m benchmarks.paper online --pair Qwen/Qwen3-8B,Qwen/Qwen3-0.6B --device cuda
    --input spec_bench_240.jsonl --sample 240`
    """
    measure.online(options)


@command(app)
def report(options: ReportOptions) -> None:
    """Write docs/paper.md from the JSON files.

    Example: `python -m benchmarks.paper report`
    """
    write_document(options.results, options.document)
    typer.echo(f"wrote {options.document}")
