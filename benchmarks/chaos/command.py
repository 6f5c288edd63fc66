"""The command: a service of its own, the load twice, faults in the second run, and the verdict.

    python -m benchmarks.chaos --input spec_bench_240.jsonl --output chaos.json

Exits with 1 where the promise is broken: an answer that differs, an error that no killed ingress or
proxy explains, a recovery beyond its limit, anything left behind.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import psutil
import typer
from rich.console import Console

from benchmarks.chaos.asked import mixed
from benchmarks.chaos.faults import Fault, parse_cycle
from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.report import Result, table
from benchmarks.chaos.run import Plan, Run, disturb
from benchmarks.harness.commands import write_json
from benchmarks.harness.machine import commit
from benchmarks.harness.ports import free_port
from benchmarks.harness.starting import service
from deployments.cli.command import command
from deployments.cli.generate.prompt_file import read_prompt_file, select
from deployments.config.flags import flag
from deployments.config.service import ServiceConfig
from specdec_core.config import Numerics

app = typer.Typer(pretty_exceptions_enable=False)


@dataclass(frozen=True, kw_only=True)
class ChaosOptions:
    """The flags of the command."""

    input: Path = flag(Path("examples/prompts.jsonl"), "JSON lines: turns, prompt or messages.")
    requests: int = flag(200, "Asked in each run.")
    concurrency: int = flag(16, "Requests at a time.")
    every: float | None = flag(None, "Seconds between faults; 5, on a slow machine more.")
    stop: float = flag(3.0, "Seconds that a stopped process stays so.")
    faults: tuple[Fault, ...] = flag(
        "", 'Such as "kill target, stop draft"; all.', parse=parse_cycle
    )
    repeat: bool = flag(
        True, "Faults go on until the last answer; else each strikes once.", "--repeat/--no-repeat"
    )
    max_tokens: int = flag(48, "Of every answer.")
    model: str = flag("smollm2-135m", "Demo model or folder.")
    cells: int = flag(1, "Each with targets and drafts of its own.")
    targets: int = flag(1, "Target replicas of a cell.")
    drafts: int = flag(1, "Draft replicas of a cell.")
    ingresses: int = flag(2, "Ingress replicas.")
    kv_cache_tokens: int = flag(32768, "Of a replica.")
    output: Path | None = flag(None, "File for the figures, as JSON.")

    def plan(self) -> Plan:
        lines = select(read_prompt_file(self.input), sample=self.requests)
        return Plan(
            asked=mixed(lines, self.requests, self.max_tokens),
            concurrency=self.concurrency,
            every_s=self.every,
            stop_s=self.stop,
            cycle=self.faults,
            repeats=self.repeat,
        )

    def service(self) -> ServiceConfig:
        return ServiceConfig.of(
            model=self.model,
            cells=self.cells,
            numerics=Numerics.EXACT,
            target_replicas=self.targets,
            draft_replicas=self.drafts,
            ingress_replicas=self.ingresses,
            max_ingress_replicas=self.ingresses,
            kv_cache_tokens=self.kv_cache_tokens,
            port=free_port(),
            grpc_port=free_port(),
        )


@command(app)
def chaos(options: ChaosOptions) -> None:
    """Kill and stop every kind of process under load; compare every byte."""
    run, processes = _run(options.service(), options.plan())
    shown = ("model", "cells", "targets", "drafts", "ingresses", "max_tokens")
    settings = {name: getattr(options, name) for name in shown}
    settings |= {"input": options.input.name, "commit": commit()}
    result = run.result(settings, left_of(processes))
    _tell(result)
    write_json(result.record(), options.output)
    raise typer.Exit(1 if result.problems else 0)


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
