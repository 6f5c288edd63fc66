"""The commands `burst`, `hostile` and `soak`: each starts a service, loads it, and ends with status
1 where something was not as promised."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console

from benchmarks.harness.starting import service
from benchmarks.overload.burst import BurstOptions, run_bursts
from benchmarks.overload.hostile import HostileOptions, run_turns, summary
from benchmarks.overload.plot import plot as draw
from benchmarks.overload.questions import Server
from benchmarks.overload.report import growth_table, memory_table, outcomes_table
from benchmarks.overload.soak import Soak, SoakOptions, run_soak
from benchmarks.overload.targets import ServiceOptions, server_of, service_config
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import stage_progress

app = typer.Typer(
    help="The service under more than it can take.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Model = Annotated[str, typer.Option(help="Demo model or folder.")]
_Port = Annotated[int, typer.Option(help="HTTP; gRPC listens 1000 higher.")]
_Threads = Annotated[int, typer.Option(help="Torch threads of the target.")]
_Queued = Annotated[int, typer.Option(help="Requests that may wait; more are refused.")]
_Ingresses = Annotated[int, typer.Option(help="Ingress replicas.")]
_Output = Annotated[Path | None, typer.Option(help="File for the figures, as JSON.")]
_MODEL = "smollm2-135m"
_PORT = 8123


@app.command()
def burst(
    http: Annotated[int, typer.Option(help="HTTP requests, half of them streams.")] = 2000,
    grpc: Annotated[int, typer.Option(help="gRPC streams.")] = 2000,
    max_tokens: int = 6,
    bursts: Annotated[int, typer.Option(help="One after the other.")] = 2,
    processes: Annotated[int, typer.Option(help="Of clients.")] = 4,
    timeout: Annotated[float, typer.Option(help="Seconds that a client waits at most.")] = 200.0,
    max_queued: _Queued = 256,
    ingresses: _Ingresses = 1,
    model: _Model = _MODEL,
    threads: _Threads = 1,
    port: _Port = _PORT,
    output: _Output = None,
) -> None:
    """All requests at one moment: right answers, polite refusals, memory that comes back."""
    options = BurstOptions(
        num_http=http,
        num_grpc=grpc,
        max_tokens=max_tokens,
        num_processes=processes,
        timeout_s=timeout,
        num_bursts=bursts,
    )
    settings = _options(model, port, threads, max_queued, ingresses)
    with _served(settings) as (server, pid), stage_progress() as report:
        found = list(run_bursts(server, pid, options, report))
    console = Console()
    console.print(outcomes_table(found), memory_table(found))
    told = {**asdict(options), "bursts": [each.record() for each in found]}
    _finish(told, settings, output, [why for each in found for why in each.broken_promises()])


@app.command()
def hostile(
    streams: Annotated[int, typer.Option(help="Well-behaved streams at a time.")] = 8,
    requests: Annotated[int, typer.Option(help="Of them, in every turn.")] = 24,
    max_tokens: int = 48,
    turns: Annotated[int, typer.Option(help="Without and with the hostile clients.")] = 3,
    slow_tokens: Annotated[int, typer.Option(help="Of a slow reader's answer.")] = 48,
    share: Annotated[float, typer.Option(help="Of a hundred hostile clients.")] = 1.0,
    ingresses: _Ingresses = 1,
    model: _Model = _MODEL,
    threads: _Threads = 1,
    port: _Port = _PORT,
    output: _Output = None,
) -> None:
    """The speed of well-behaved streams alone and beside a hundred hostile clients, in turns."""
    options = HostileOptions(
        streams=streams,
        requests=requests,
        max_tokens=max_tokens,
        turns=turns,
        slow_tokens=slow_tokens,
        share=share,
    )
    settings = _options(model, port, threads, 1024, ingresses)
    with _served(settings) as (server, pid), stage_progress() as report:
        found = summary(list(run_turns(server, pid, options, report)))
    _finish({**asdict(options), **found}, settings, output, found["broken_promises"])


@app.command()
def soak(
    minutes: float = 30.0,
    streams: Annotated[int, typer.Option(help="At a time: half of what is admitted.")] = 16,
    max_tokens: int = 48,
    plot: Annotated[Path | None, typer.Option(help="File for a picture.")] = None,
    every: Annotated[float, typer.Option(help="Seconds between samples.")] = 10.0,
    ingresses: _Ingresses = 1,
    model: _Model = _MODEL,
    threads: _Threads = 1,
    port: _Port = _PORT,
    output: _Output = None,
) -> None:
    """Mixed requests for a long time: nothing that a process holds grows."""
    if plot is not None:
        check_can_plot()
    options = SoakOptions(minutes=minutes, streams=streams, max_tokens=max_tokens, every_s=every)
    settings = _options(model, port, threads, 1024, ingresses)
    with _served(settings) as (server, pid), stage_progress() as report:
        found = run_soak(server, pid, options, report)
    if plot is not None:
        draw(found, plot)
    Console().print(growth_table(_per_hour(found)), dict(found.counts))
    told = {
        **asdict(options),
        "counts": dict(found.counts),
        "left_over": found.left_over,
        "trends": {k: {n: asdict(t) for n, t in row.items()} for k, row in found.trends.items()},
        "samples": [sample.record() for sample in found.samples],
    }
    _finish(told, settings, output, found.broken_promises())


def _per_hour(soak: Soak) -> dict[str, dict[str, float]]:
    return {
        kind: {name: trend.per_hour for name, trend in row.items()}
        for kind, row in soak.trends.items()
    }


def _options(
    model: str, port: int, threads: int, max_queued: int, ingresses: int
) -> ServiceOptions:
    return ServiceOptions(
        model=model,
        port=port,
        threads=threads,
        max_group_size=16,
        max_num_seqs=32,
        max_queued=max_queued,
        ingresses=ingresses,
    )


@contextlib.contextmanager
def _served(options: ServiceOptions) -> Iterator[tuple[Server, int]]:
    """A service in processes of its own, and its first process."""
    config = service_config(options)
    with service(config) as process:
        yield server_of(config), process.pid


def _finish(
    told: dict[str, Any], settings: ServiceOptions, output: Path | None, broken: Sequence[str]
) -> None:
    machine = {"cores": psutil.cpu_count(), "memory_mib": psutil.virtual_memory().total // 2**20}
    told = {"service": asdict(settings), "machine": machine, **told, "broken_promises": broken}
    if output is not None:
        output.write_text(json.dumps(told, indent=2) + "\n")
    console = Console(highlight=False)
    shown = {name: value for name, value in told.items() if name not in ("samples", "bursts")}
    console.print_json(json.dumps(shown))
    for why in broken:
        console.print(f"BROKEN: {why}", style="red", markup=False)
    sys.exit(1 if broken else 0)
