"""Starts a service, measures, writes the figures; status 1 if a limit was exceeded.

python -m benchmarks.neighbours --output benchmarks/results/neighbours.json
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console

from benchmarks.harness.commands import write_json
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
from deployments.cli.progress import stage_progress
from deployments.config.service import ServiceConfig
from specdec_core.config import SpecMethod

app = typer.Typer(pretty_exceptions_enable=False)

Report = Callable[[str, int, int], None]


@app.command()
def neighbours(
    turns: Annotated[int, typer.Option(help="Trials of each input; medians count.")] = 5,
    only: Annotated[
        str, typer.Option(help=f"Inputs, separated by commas: {', '.join(HOSTILE)}. Default: all.")
    ] = "",
    crowds: Annotated[bool, typer.Option(help="Whether 32 requests run at a time too.")] = True,
    model: Annotated[str, typer.Option(help="Demo model or folder.")] = "smollm2-135m",
    threads: Annotated[int, typer.Option(help="Torch threads of the target.")] = 1,
    port: Annotated[int, typer.Option(help="HTTP; gRPC listens 1000 higher.")] = 8123,
    running: Annotated[
        str, typer.Option(help="Model name of a service that runs at the port. Default: start one.")
    ] = "",
    output: Annotated[Path | None, typer.Option(help="File for the figures, as JSON.")] = None,
) -> None:
    """Measure the longest gap of one stream next to hostile requests.

    The limit is 100 ms over the gap next to a harmless request of as many prompt tokens. Next to 32
    requests of one schema, the limit is 20 ms over the gap next to 32 requests without a schema.
    """
    names = [name.strip() for name in only.split(",") if name.strip()] or list(HOSTILE)
    unknown = sorted(set(names) - HOSTILE.keys())
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(HOSTILE)}")
    config = service_config(model, port, threads)
    with _served(config, running) as server, stage_progress() as report:
        trials = asyncio.run(measure(server, names, turns, crowds, report))
    Console().print(table(trials))
    broken = broken_promises(trials)
    write_json(_told(config, trials, broken), output)
    for why in broken:
        Console(highlight=False).print(f"EXCEEDED: {why}", style="red", markup=False)
    sys.exit(1 if broken else 0)


def service_config(model: str, port: int, threads: int) -> ServiceConfig:
    """Every token is a chunk, and 33 streams fit in one batch."""
    return ServiceConfig(
        model=model,
        served_model_name="served",
        spec_method=SpecMethod.NONE,
        stream_interval=1,
        max_num_seqs=40,
        window=80,
        torch_threads=threads,
        audit_share=0.0,
        port=port,
        grpc_port=port + 1000,
    )


@contextlib.contextmanager
def _served(config: ServiceConfig, running: str) -> Iterator[Server]:
    server = Server(
        port=config.port, grpc_port=config.grpc_port, model=running or config.model_name
    )
    with contextlib.nullcontext() if running else service(config):
        yield server


async def measure(
    server: Server, names: Sequence[str], turns: int, crowds: bool, report: Report
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
