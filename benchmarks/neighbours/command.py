"""Starts a service, measures, writes the figures; status 1 if a limit was exceeded.

python -m benchmarks.neighbours --output benchmarks/results/neighbours.json
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import typer
from rich.console import Console

from benchmarks.harness.commands import StageReport, known, write_json
from benchmarks.harness.machine import commit, cpu_name
from benchmarks.harness.starting import service
from benchmarks.neighbours.gaps import Trial, trial
from benchmarks.neighbours.inputs import HOSTILE, Input, crowd, harmless
from benchmarks.neighbours.report import (
    HARMLESS,
    PLAIN_CROWD,
    SCHEMA_CROWD,
    broken_promises,
    record,
    table,
)
from benchmarks.overload.questions import Server
from deployments.cli.command import command
from deployments.cli.progress import stage_progress
from deployments.config.flags import flag
from deployments.config.service import ServiceConfig
from specdec_core.config import SpecMethod

app = typer.Typer(pretty_exceptions_enable=False)


@dataclass(frozen=True, kw_only=True)
class NeighboursOptions:
    """The flags of the command."""

    turns: int = flag(5, "Trials of each input; medians count.")
    only: tuple[str, ...] = flag(
        ",".join(HOSTILE), "Inputs, separated by commas.", parse=known("input", HOSTILE)
    )
    crowds: bool = flag(True, "Whether 32 requests run at a time too.", "--crowds/--no-crowds")
    model: str = flag("smollm2-135m", "Demo model or folder.")
    threads: int = flag(1, "Torch threads of the target.")
    port: int = flag(8123, "HTTP; gRPC listens 1000 higher.")
    running: str = flag("", "Model name of a service that runs at the port. Default: start one.")
    output: Path | None = flag(None, "File for the figures, as JSON.")

    def service(self) -> ServiceConfig:
        """Every token is a chunk, and 33 streams fit in one batch."""
        return ServiceConfig.of(
            model=self.model,
            served_model_name="served",
            spec_method=SpecMethod.NONE,
            stream_interval=1,
            max_num_seqs=40,
            window=80,
            torch_threads=self.threads,
            audit_share=0.0,
            port=self.port,
            grpc_port=self.port + 1000,
        )


@command(app)
def neighbours(options: NeighboursOptions) -> None:
    """Measure the longest gap of one stream next to hostile requests.

    The limit is 100 ms over the gap next to a harmless request of as many prompt tokens. Next to 32
    requests of one schema, the limit is 20 ms over the gap next to 32 requests without a schema.
    """
    config = options.service()
    with _served(config, options.running) as server, stage_progress() as report:
        trials = asyncio.run(measure(server, options.only, options.turns, options.crowds, report))
    Console().print(table(trials))
    broken = broken_promises(trials)
    write_json(_told(config, trials, broken), options.output)
    for why in broken:
        Console(highlight=False).print(f"EXCEEDED: {why}", style="red", markup=False)
    sys.exit(1 if broken else 0)


@contextlib.contextmanager
def _served(config: ServiceConfig, running: str) -> Iterator[Server]:
    server = Server(
        port=config.port, grpc_port=config.grpc_port, model=running or config.model_name
    )
    with contextlib.nullcontext() if running else service(config):
        yield server


async def measure(
    server: Server, names: Sequence[str], turns: int, crowds: bool, report: StageReport
) -> dict[str, list[Trial]]:
    """All inputs in turns, after one turn of the harmless one that warms the service up."""
    await trial(server, [harmless()])
    trials: dict[str, list[Trial]] = {}
    for turn in range(turns):
        for name, inputs in _turn(names, turn, crowds):
            trials.setdefault(name, []).append(await trial(server, inputs))
        report("turns", turn + 1, turns)
    return trials


def _turn(names: Sequence[str], turn: int, crowds: bool) -> Iterator[tuple[str, list[Input]]]:
    yield HARMLESS, [harmless()]
    for name in names:
        yield name, [HOSTILE[name]()]
    if crowds:
        yield PLAIN_CROWD, crowd(turn, has_schema=False)
        yield SCHEMA_CROWD, crowd(turn, has_schema=True)


def _told(
    config: ServiceConfig, trials: dict[str, list[Trial]], broken: list[str]
) -> dict[str, Any]:
    return {
        "command": shlex.join(["python", "-m", "benchmarks.neighbours", *sys.argv[1:]]),
        "commit": commit(),
        "machine": {"cpu": cpu_name(), "cores": psutil.cpu_count()},
        "service": config.deployable(),
        "beside": record(trials),
        "exceeded": broken,
    }
