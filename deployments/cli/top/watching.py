"""Ask a running service for its status repeatedly, also while it does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
from rich.console import Console
from rich.live import Live

from deployments.cli.bench.names import GRPC_ADDRESS
from deployments.cli.top.counts import Poll
from deployments.cli.top.view import away, view
from deployments.wire.endpoint import MESSAGE_OPTIONS
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc
from specdec_core.errors import InvalidRequestError, SpecdecError

_TIMEOUT_S = 10.0
_SPEAKS_HTTP_1 = "Failed parsing HTTP/2"
"""Message of gRPC about a port that answers in HTTP/1."""
_WRONG = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
"""Errors that a retry does not fix."""

Poller = Callable[[], Poll]


class AwayError(SpecdecError):
    """The service does not answer."""


@contextmanager
def service_at(address: str, api_key: str | None) -> Iterator[Poller]:
    """Yield a function that asks the service for its status.

    It raises AwayError, or InvalidRequestError if the key is wrong or the address is that of
    HTTP.
    """
    if "://" in address:
        raise _not_grpc(address)
    metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
    with grpc.insecure_channel(address, options=MESSAGE_OPTIONS) as channel:
        stub = pb_grpc.GenerationServiceStub(channel)

        def poll_service() -> Poll:
            try:
                status = stub.PoolStatus(
                    pb.PoolStatusRequest(), metadata=metadata, timeout=_TIMEOUT_S
                )
            except grpc.RpcError as error:
                raise _error_of(address, error) from error
            return Poll(status, time.monotonic())

        yield poll_service


def show_once(poll_service: Poller, address: str, interval_s: float, console: Console) -> None:
    """Show one view from two polls, so that there are rates."""
    first = poll_service()
    time.sleep(interval_s)
    console.print(view(address, poll_service(), first))


def watch(poll_service: Poller, address: str, interval_s: float, console: Console) -> None:
    """Show views until Ctrl-C."""
    earlier: Poll | None = None
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            try:
                poll = poll_service()
                live.update(view(address, poll, earlier), refresh=True)
                earlier = poll
            except AwayError as error:
                live.update(away(str(error)), refresh=True)
                earlier = None
            time.sleep(interval_s)


def _error_of(address: str, error: grpc.RpcError) -> SpecdecError:
    details = error.details() if isinstance(error, grpc.Call) else None
    message = (details or type(error).__name__).splitlines()[0]
    if isinstance(error, grpc.Call) and error.code() in _WRONG:
        return InvalidRequestError(f"{address}: {message}")
    if _SPEAKS_HTTP_1 in message:
        return _not_grpc(address)
    return AwayError(f"{address} does not answer: {message}")


def _not_grpc(address: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{address} is an HTTP address, but this command uses gRPC. Give HOST:PORT of the "
        f"service's gRPC port (--grpc-port), by default {GRPC_ADDRESS}"
    )
