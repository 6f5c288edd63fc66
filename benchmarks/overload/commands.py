"""The commands `burst`, `hostile` and `soak`: each starts a service, loads it, and ends with status
1 where something was not as promised."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import psutil
from rich.console import Console

from benchmarks.harness.commands import command_line, write_json
from benchmarks.harness.starting import service
from benchmarks.overload.burst import BurstOptions, run_bursts
from benchmarks.overload.hostile import HostileOptions, run_turns, summary
from benchmarks.overload.plot import plot as draw
from benchmarks.overload.questions import Server
from benchmarks.overload.report import growth_table, memory_table, outcomes_table
from benchmarks.overload.soak import Soak, SoakOptions, run_soak
from benchmarks.overload.targets import ServiceOptions, server_of, service_config
from deployments.cli.command import command
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import stage_progress

app = command_line("The service under more than it can take.")


@command(app)
def burst(options: BurstOptions) -> None:
    """All requests at one moment: right answers, polite refusals, memory that comes back."""
    with _served(options.service) as (server, pid), stage_progress() as report:
        found = list(run_bursts(server, pid, options, report))
    console = Console()
    console.print(outcomes_table(found), memory_table(found))
    told = {"bursts": [each.record() for each in found]}
    _finish(options, told, [why for each in found for why in each.broken_promises()])


@command(app)
def hostile(options: HostileOptions) -> None:
    """The speed of well-behaved streams alone and beside a hundred hostile clients, in turns."""
    with _served(options.service) as (server, pid), stage_progress() as report:
        found = summary(list(run_turns(server, pid, options, report)))
    _finish(options, found, found["broken_promises"])


@command(app)
def soak(options: SoakOptions) -> None:
    """Mixed requests for a long time: nothing that a process holds grows."""
    if options.plot is not None:
        check_can_plot()
    with _served(options.service) as (server, pid), stage_progress() as report:
        found = run_soak(server, pid, options, report)
    if options.plot is not None:
        draw(found, options.plot)
    Console().print(growth_table(_per_hour(found)), dict(found.counts))
    told = {
        "counts": dict(found.counts),
        "left_over": found.left_over,
        "trends": {k: {n: asdict(t) for n, t in row.items()} for k, row in found.trends.items()},
        "samples": [sample.record() for sample in found.samples],
    }
    _finish(options, told, found.broken_promises())


def _per_hour(soak: Soak) -> dict[str, dict[str, float]]:
    return {
        kind: {name: trend.per_hour for name, trend in row.items()}
        for kind, row in soak.trends.items()
    }


@contextlib.contextmanager
def _served(options: ServiceOptions) -> Iterator[tuple[Server, int]]:
    """A service in processes of its own, and its first process."""
    config = service_config(options)
    with service(config) as process:
        yield server_of(config), process.pid


def _finish(
    options: BurstOptions | HostileOptions | SoakOptions,
    told: dict[str, Any],
    broken: Sequence[str],
) -> None:
    machine = {"cores": psutil.cpu_count(), "memory_mib": psutil.virtual_memory().total // 2**20}
    told = {**asdict(options), "machine": machine, **told, "broken_promises": broken}
    write_json(told, options.output)
    console = Console(highlight=False)
    shown = {name: value for name, value in told.items() if name not in ("samples", "bursts")}
    console.print_json(json.dumps(shown, default=str))
    for why in broken:
        console.print(f"BROKEN: {why}", style="red", markup=False)
    sys.exit(1 if broken else 0)
