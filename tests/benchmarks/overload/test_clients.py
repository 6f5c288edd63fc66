"""Client processes start together."""

from __future__ import annotations

import multiprocessing
import select
import socket
from collections.abc import Callable

import pytest

from benchmarks.overload.clients import ask_at_once
from benchmarks.overload.questions import Outcome, Server, Verdict, mixture
from specdec_core.errors import SpecdecError

NUM_PROCESSES = 2


def ask_somebody_silent(listener: socket.socket, before_start: Callable[[], None]) -> list[Outcome]:
    """A question over HTTP for each process; whoever listens never answers."""
    return ask_at_once(
        Server(port=listener.getsockname()[1], grpc_port=1, model="none", api_key="none"),
        mixture(NUM_PROCESSES, 0, [(1, 2, 3)], 4),
        num_processes=NUM_PROCESSES,
        timeout_s=1.0,
        watch=lambda num_ended: None,
        before_start=before_start,
    )


def is_asked(listener: socket.socket, within_s: float) -> bool:
    return bool(select.select([listener], [], [], within_s)[0])


def test_all_processes_are_there_before_the_start_and_nothing_is_sent() -> None:
    seen: list[tuple[int, bool]] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def look() -> None:
            seen.append((len(multiprocessing.active_children()), is_asked(listener, 0.3)))

        outcomes = ask_somebody_silent(listener, look)
        assert seen == [(NUM_PROCESSES, False)]
        assert is_asked(listener, 0.0), "after the start"
    assert [outcome.verdict for outcome in outcomes] == [Verdict.FAILED] * NUM_PROCESSES


def test_a_caller_that_fails_before_the_start_leaves_nobody_waiting() -> None:
    def fail() -> None:
        raise SpecdecError("no target stands still")

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(SpecdecError, match="stands still"),
    ):
        ask_somebody_silent(listener, fail)
    assert not multiprocessing.active_children()
