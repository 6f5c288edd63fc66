"""The command `specdec top`."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer
from rich.console import Console

from deployments.cli.bench.names import GRPC_ADDRESS


def top(
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Address of the service for gRPC, not HTTP.")
    ] = GRPC_ADDRESS,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", envvar="OPENAI_API_KEY", help="API key, sent as a bearer token."
        ),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one view and exit.")] = False,
) -> None:
    """Watch a running service: pool, groups, acceptance, tokens per second, replicas, cells.

    Everything is read from GenerationService.PoolStatus; rates are of the time between two looks. A
    service that is away is asked on until it is back; with `--once` that is an error. Ctrl-C ends.

    Examples:

    `specdec top`

    `specdec top 10.0.0.7:9000 --api-key secret --interval 5`

    `specdec top --once > status.txt`
    """
    from deployments.cli.top.watching import service_at, show_once, watch

    console = Console()
    with service_at(address, api_key) as ask, contextlib.suppress(KeyboardInterrupt):
        show = show_once if once else watch
        show(ask, address, interval, console)
