"""`specdec bench serve`: load a running server and report how fast it answered."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import NamedTuple

from rich.console import Console

from deployments.cli.bench.client import Client
from deployments.cli.bench.load import Load, LoadRun, Report, run_load
from deployments.cli.bench.names import Backend
from deployments.cli.bench.serve_options import BenchServeOptions
from deployments.cli.bench.serve_plot import plot
from deployments.cli.bench.serve_report import failures_text, result, serve_table
from deployments.cli.plotting import check_can_plot
from deployments.cli.progress import request_progress
from specdec_core.errors import SpecdecError


class Measured(NamedTuple):
    model: str
    runs: list[LoadRun]


def run(options: BenchServeOptions) -> None:
    """Measure the server, print a table and write the requested files.

    Raises SpecdecError if no request of a run was answered.
    """
    if options.plot is not None:
        check_can_plot()
    load = options.load()
    with request_progress(options.repeat * len(load.prompts)) as report:
        measured = asyncio.run(_measure(options, load, report))
    found = result(options, measured.model, measured.runs)
    console = Console()
    console.print(serve_table(found, options.wanted))
    for line in failures_text(measured.runs):
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    if options.save_result is not None:
        options.save_result.write_text(json.dumps(found, indent=2, default=str) + "\n")
    if options.plot is not None:
        plot(measured.runs, options.plot)
    if not all(run.num_completed for run in measured.runs):
        raise SpecdecError("no request was answered")


async def _measure(options: BenchServeOptions, load: Load, report: Report) -> Measured:
    async with _connect(options) as client:
        await _warm_up(client, load, options.num_warmups)
        runs: list[LoadRun] = []
        for _ in range(options.repeat):
            num_before = len(runs) * len(load.prompts)
            run = await run_load(client, load.for_one_run(), _behind(num_before, report))
            runs.append(run)
        return Measured(client.model, runs)


def _behind(num_before: int, report: Report) -> Report:
    """Return a report that adds the requests of earlier runs."""

    def told(num_ended: int, tokens_per_second: float) -> None:
        report(num_before + num_ended, tokens_per_second)

    return told


def _connect(options: BenchServeOptions) -> AbstractAsyncContextManager[Client]:
    if options.backend is Backend.GRPC:
        from deployments.cli.bench.grpc_load import grpc_client

        return grpc_client(
            options.address,
            model=options.model,
            api_key=options.api_key,
            extra_body=options.extra_body,
        )
    from deployments.cli.bench.http_load import check_has_aiohttp, http_client

    check_has_aiohttp()
    return http_client(
        options.url,
        is_chat=options.backend is Backend.OPENAI_CHAT,
        model=options.model,
        api_key=options.api_key,
        extra_body=options.extra_body,
    )


async def _warm_up(client: Client, load: Load, count: int) -> None:
    """Send the first prompt `count` times, as in vLLM. Raises SpecdecError if one fails."""
    prompts = [load.prompts[0]] * count
    warm_up = replace(load, prompts=prompts, arrivals_s=[0.0] * count)
    ended = await run_load(client, warm_up.for_one_run(), lambda num_ended, speed: None)
    for message in ended.failures:
        raise SpecdecError(f"a warm-up request failed: {message}")
