"""The command: a service of its own, the load twice, faults in the second run, and the verdict.

    python -m benchmarks.chaos --input spec_bench_240.jsonl --output chaos.json

Exits with 1 where the promise is broken: an answer that differs, an error that no killed ingress or
proxy explains, a recovery beyond its limit, anything left behind.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console

from benchmarks.chaos.asked import mixed
from benchmarks.chaos.faults import parse_cycle
from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.report import Result, table
from benchmarks.chaos.run import Plan, Run, disturb
from benchmarks.harness.commands import write_json
from benchmarks.harness.machine import commit
from benchmarks.harness.ports import free_port
from benchmarks.harness.starting import service
from deployments.cli.generate.prompt_file import read_prompt_file, select
from deployments.config.service import ServiceConfig
from specdec_core.config import Numerics


def main(
    input: Annotated[Path, typer.Option(help="JSON lines: turns, prompt or messages.")] = Path(
        "examples/prompts.jsonl"
    ),
    requests: Annotated[int, typer.Option(help="Asked in each run.")] = 200,
    concurrency: int = 16,
    every: Annotated[
        float | None, typer.Option(help="Seconds between faults; 5, on a slow machine more.")
    ] = None,
    stop: Annotated[float, typer.Option(help="Seconds that a stopped process stays so.")] = 3.0,
    faults: Annotated[str, typer.Option(help='Such as "kill target, stop draft"; all.')] = "",
    repeat: Annotated[
        bool, typer.Option(help="Faults go on until the last answer; else each strikes once.")
    ] = True,
    max_tokens: int = 48,
    model: str = "smollm2-135m",
    cells: Annotated[int, typer.Option(help="Each with targets and drafts of its own.")] = 1,
    targets: int = 1,
    drafts: int = 1,
    ingresses: int = 2,
    kv_cache_tokens: int = 32768,
    output: Path | None = None,
) -> None:
    """Kill and stop every kind of process under load; compare every byte."""
    config = _config(model, cells, targets, drafts, ingresses, kv_cache_tokens)
    plan = Plan(
        asked=mixed(select(read_prompt_file(input), sample=requests), requests, max_tokens),
        concurrency=concurrency,
        every_s=every,
        stop_s=stop,
        cycle=parse_cycle(faults),
        repeats=repeat,
    )
    run, processes = _run(config, plan)
    settings = {"model": model, "cells": cells, "targets": targets, "drafts": drafts}
    settings |= {
        "ingresses": ingresses,
        "max_tokens": max_tokens,
        "input": input.name,
        "commit": commit(),
    }
    result = run.result(settings, left_of(processes))
    _tell(result)
    write_json(result.record(), output)
    raise typer.Exit(1 if result.problems else 0)


def _config(
    model: str, cells: int, targets: int, drafts: int, ingresses: int, kv_cache_tokens: int
) -> ServiceConfig:
    return ServiceConfig(
        model=model,
        cells=cells,
        numerics=Numerics.EXACT,
        target_replicas=targets,
        draft_replicas=drafts,
        ingress_replicas=ingresses,
        max_ingress_replicas=ingresses,
        kv_cache_tokens=kv_cache_tokens,
        port=free_port(),
        grpc_port=free_port(),
    )


def _tell(result: Result) -> None:
    console = Console(width=120)
    console.print(table(result))
    for problem in result.problems:
        console.print(problem, markup=False, highlight=False)


def _run(config: ServiceConfig, plan: Plan) -> tuple[Run, list[psutil.Process]]:
    """What was found, and every process that the service had at its end."""
    with service(config) as process:
        run = asyncio.run(disturb(config, plan, process.pid))
        return run, process.members()
