"""Client processes start together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.overload.clients import ask_at_once
from benchmarks.overload.questions import Outcome, Server
from specdec_core.errors import SpecdecError

NOBODY = Server(port=1, grpc_port=2, model="none", api_key="none")


def ask_nothing(num_processes: int, before_start: Callable[[], None]) -> list[Outcome]:
    return ask_at_once(
        NOBODY,
        [],
        num_processes=num_processes,
        timeout_s=1.0,
        watch=lambda num_ended: None,
        before_start=before_start,
    )


def test_the_start_waits_for_all_processes_and_for_the_caller() -> None:
    calls: list[str] = []
    assert ask_nothing(2, lambda: calls.append("called")) == []
    assert calls == ["called"]


def test_a_caller_that_fails_before_the_start_leaves_nobody_waiting() -> None:
    def fail() -> None:
        raise SpecdecError("no target stands still")

    with pytest.raises(SpecdecError, match="stands still"):
        ask_nothing(1, fail)
