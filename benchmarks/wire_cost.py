"""What serving adds to a round: by stage, and the CPU time of every process of the service.

Starts a service and reads Spec-Bench prompts from it, with proposals and plainly in turns. The
stages are the server's own (`specdec_round_stage_seconds` of /metrics); `added` is what a round
would not pay if pool and model were one process.

    python -m benchmarks.wire_cost --input spec_bench_240.jsonl --output wire_cost.json
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness.load import load
from benchmarks.harness.processes import below, cpu_seconds, name_of
from benchmarks.harness.starting import service
from deployments.bench.stage_figures import middle_stages
from deployments.config import ServiceConfig
from deployments.generate.prompt_file import PromptLine, read_prompt_file, select
from specdec_core.config import SpecMethod

_WARM_UP_TOKENS = 16
_PLAIN = {"speculative": {"enabled": False}}
_CLIENT = "load generator"


def main(
    input: Annotated[Path, typer.Option(help="JSON lines with turns: Spec-Bench.")],
    batch: Annotated[int, typer.Option(help="Rows of a group.")] = 8,
    streams: Annotated[int | None, typer.Option(help="At a time; as many as rows.")] = None,
    turns: Annotated[int, typer.Option(help="Loads of every method.")] = 4,
    max_tokens: int = 128,
    threads: Annotated[int, typer.Option(help="Torch threads of the target.")] = 2,
    stream_interval: Annotated[int, typer.Option(help="Fewest tokens of a chunk.")] = 1,
    model: str = "smollm2-135m",
    port: int = 8123,
    output: Path | None = None,
) -> None:
    """Measure, print medians over the turns, write everything to --output."""
    num_streams = streams or batch
    lines = select(read_prompt_file(input), sample=num_streams * turns)
    config = ServiceConfig(
        model=model,
        spec_method=SpecMethod.NGRAM,
        max_num_seqs=batch,
        window=max(32, batch),
        torch_threads=threads,
        enable_prefix_caching=False,  # both methods read the same prompts
        stream_interval=stream_interval,
        port=port,
        grpc_port=port + 1000,
    )
    methods: dict[str, Mapping[str, Any]] = {"ngram": {}, "none": _PLAIN}
    found: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    with service(config) as process:
        load(config, lines[:num_streams], _WARM_UP_TOKENS)
        for turn in track(range(turns), description="turns"):
            for method, body in methods.items():
                part = lines[turn::turns]
                found[method].append(_turn(config, process.pid, part, max_tokens, body))
    settings: dict[str, Any] = {
        "model": model,
        "batch": batch,
        "streams": num_streams,
        "threads": threads,
        "stream_interval": stream_interval,
    }
    told = {method: _over_turns(each) for method, each in found.items()}
    for method in methods:
        _print(f"{method}, {num_streams} streams, groups of {batch}", told[method])
    if output is not None:
        result = {**settings, "max_tokens": max_tokens, "methods": told, "turns": found}
        output.write_text(json.dumps(result, indent=2) + "\n")


def _turn(
    config: ServiceConfig,
    pid: int,
    lines: Sequence[PromptLine],
    max_tokens: int,
    body: Mapping[str, Any],
) -> dict[str, Any]:
    before = cpu_by_process(pid)
    run = load(config, lines, max_tokens, body)
    spent = cpu_by_process(pid)
    spent.subtract(before)
    assert run.stages is not None, "the server tells its stages"
    num_rounds = run.stages["target verify"]["count"]
    return {
        "tokens_per_second": run.num_output / run.duration_s,
        "round_ms": 1000 * run.duration_s / num_rounds,
        "stages": run.stages,
        "cpu_ms_per_round": {
            name: 1000 * seconds / num_rounds
            for name, seconds in spent.most_common()
            if 1000 * seconds / num_rounds >= 0.01
        },
    }


def cpu_by_process(pid: int) -> Counter[str]:
    """User and system time so far, by process; of the load generator too."""
    own = psutil.Process().cpu_times()
    return Counter({_CLIENT: own.user + own.system}) + cpu_seconds(below(pid), name_of)


def _over_turns(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians."""
    names = {name: None for turn in turns for name in turn["cpu_ms_per_round"]}
    return {
        **{key: median([turn[key] for turn in turns]) for key in ("tokens_per_second", "round_ms")},
        "stages": middle_stages([turn["stages"] for turn in turns]),
        "cpu_ms_per_round": {
            name: median([turn["cpu_ms_per_round"].get(name, 0.0) for turn in turns])
            for name in names
        },
    }


def _print(title: str, told: Mapping[str, Any]) -> None:
    console = Console()
    table = Table("stage", "count", "mean", "P50", "P90", "P99", title=f"{title}: milliseconds")
    for name, figures in told["stages"].items():
        cells = (figures.get(key) for key in ("mean_ms", "p50_ms", "p90_ms", "p99_ms"))
        shown = ("-" if cell is None else f"{cell:.3f}" for cell in cells)
        table.add_row(name, f"{figures['count']:g}", *shown)
    console.print(table)
    spent = ", ".join(f"{name} {ms:.2f}" for name, ms in told["cpu_ms_per_round"].items())
    console.print(
        f"{told['tokens_per_second']:.1f} tokens/s, {told['round_ms']:.1f} ms a round; "
        f"CPU ms a round: {spent}",
        highlight=False,
    )


if __name__ == "__main__":
    typer.run(main)
