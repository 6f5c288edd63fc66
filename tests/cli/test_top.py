"""`specdec top` against a server that is there, goes and comes back; no service is needed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from rich.console import Console

from benchmarks.harness.ports import free_port
from deployments.cli.top import watching
from deployments.cli.top.counts import Poll
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc
from tests.cli.conftest import Specdec

KEY = "secret"


class Servicer(pb_grpc.GenerationServiceServicer):
    """Answers whoever has the key."""

    def PoolStatus(
        self, request: pb.PoolStatusRequest, context: grpc.ServicerContext
    ) -> pb.PoolStatusResponse:
        if ("authorization", f"Bearer {KEY}") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the API key is missing or wrong")
        return pb.PoolStatusResponse(epoch=1, num_running=4711)


@contextmanager
def server(port: int) -> Iterator[str]:
    running = grpc.server(ThreadPoolExecutor(1))
    pb_grpc.add_GenerationServiceServicer_to_server(Servicer(), running)
    running.add_insecure_port(f"127.0.0.1:{port}")
    running.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        running.stop(None).wait()


def test_once_prints_one_view_and_ends(specdec: Specdec) -> None:
    with server(free_port()) as address:
        outcome = specdec("top", address, "--once", "--interval", "0.1", "--api-key", KEY)
    assert outcome.status == 0
    assert outcome.out.count("4711") == 1
    assert "\x1b" not in outcome.out


def test_once_says_that_nobody_answers(specdec: Specdec) -> None:
    address = f"127.0.0.1:{free_port()}"
    outcome = specdec("top", address, "--once")
    assert outcome.status == 1
    assert f"{address} does not answer" in outcome.err


@pytest.mark.parametrize("more", [(), ("--once",)])
def test_a_wrong_key_ends_it(specdec: Specdec, more: tuple[str, ...]) -> None:
    with server(free_port()) as address:
        outcome = specdec("top", address, "--api-key", "wrong", *more)
    assert outcome.status == 2
    assert "API key" in outcome.err


def test_a_server_that_is_away_is_asked_on_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Away, there twice, away, there: every look is drawn."""
    answers = iter([False, True, True, False, True])
    shown: list[str] = []

    def ask() -> Poll:
        is_there = next(answers, None)
        if is_there is None:
            raise KeyboardInterrupt
        if not is_there:
            raise watching.AwayError("nobody answers")
        return Poll(pb.PoolStatusResponse(epoch=1, num_running=4711), float(len(shown)))

    class Recorder:
        def update(self, renderable: object, *, refresh: bool) -> None:
            console = Console(file=io.StringIO(), width=120)
            console.print(renderable)
            assert isinstance(console.file, io.StringIO)
            shown.append(console.file.getvalue())

    @contextmanager
    def live(**options: object) -> Iterator[Recorder]:
        yield Recorder()

    monkeypatch.setattr(watching, "Live", live)
    with pytest.raises(KeyboardInterrupt):
        watching.watch(ask, "host:9000", 0.0, Console(file=io.StringIO()))
    assert ["trying again" in text for text in shown] == [True, False, False, True, False]
    rates = [" 0.0 " in text for text in shown]
    assert rates == [False, False, True, False, False], "only between two looks at one life"
    assert "4711" in shown[-1]
