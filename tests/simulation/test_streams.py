"""gRPC's stub and servicer over the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from deployments.simulation.invariants.patience import Patience
from deployments.simulation.invariants.surprises import no_surprises
from deployments.simulation.record import Violation
from deployments.simulation.virtual_loop import leave_loops
from deployments.wire import liveness as silence
from deployments.wire.liveness import PeerTimeoutError, received
from specdec.v1 import coordination_pb2 as pb
from tests.simulation.worlds import Asking, World, numbers


@pytest.fixture(autouse=True)
def _left() -> Iterator[None]:
    yield
    leave_loops()


@pytest.fixture
def world() -> World:
    return World()


class Heard:
    """What one call has said, and how it ended."""

    def __init__(self, *given: int, rests_s: float = 0.0) -> None:
        self.said: list[int] = []
        self.ended: str = ""
        self.at = 0.0
        self._given = given
        self._rests_s = rests_s

    async def __call__(self, client: Asking, stub: Any) -> None:
        try:
            async for message in stub.Work(numbers(*self._given), metadata=()):
                self.said.append(message.registered.epoch)
                await asyncio.sleep(self._rests_s)
            self.ended = "ended"
        except grpc.aio.AioRpcError as error:
            self.ended = f"{error.code().name} {error.details()}"
        self.at = client.timeline.now


def test_messages_come_in_order_and_both_ends_learn_of_the_end(world: World) -> None:
    heard = Heard(1, 2, 3)
    world.client(heard)
    world.run(1.0)
    assert (heard.said, heard.ended) == ([1, 2, 3], "ended")
    assert world.server.heard == [1, 2, 3]
    assert world.server.ends == ["over"]
    assert world.network.streams == {}
    assert world.record.messages["WorkUp.register"] == 3
    assert world.record.messages["WorkDown.registered"] == 3


def test_a_handler_that_aborts_tells_why(world: World) -> None:
    heard = Heard(1, 99)
    world.client(heard)
    world.run(1.0)
    assert heard.said == [1]
    assert heard.ended == "FAILED_PRECONDITION no such number"


def test_who_reads_slowly_holds_up_who_writes(world: World) -> None:
    heard = Heard(1, rests_s=1.0)
    world.server.extra = 9
    client = world.client(heard)
    world.run(0.5)
    assert client.stream is not None
    assert client.stream.down.num_unread == 4
    assert not client.stream.down.is_empty
    world.run(20.0)
    assert heard.said == [1] * 10


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_crash_is_seen_by_the_other_end_alone(world: World, who: str) -> None:
    heard = Heard(1, 2, 3, 4, 5, 6, 7, rests_s=10.0)
    client = world.client(heard)
    world.run(0.5)
    (client if who == "client" else world.server).crash()
    world.run(40.0)
    assert world.server.ends == ([] if who == "server" else ["over"])
    assert heard.ended == ("" if who == "client" else "UNAVAILABLE the connection is gone")
    assert world.network.streams == {}


def test_a_cut_loses_what_is_written_then_and_each_end_learns_of_it(world: World) -> None:
    heard = Heard(*range(30), rests_s=0.01)
    client = world.client(heard)
    world.run(0.1)
    assert client.stream is not None
    client.stream.cut()
    world.run(2.0)
    assert 0 < len(heard.said) < 30
    assert heard.ended.startswith("UNAVAILABLE")
    assert world.server.ends == ["over"]


def test_news_is_lost_only_where_more_will_come(world: World) -> None:
    from deployments.simulation.network import _may_be_lost

    token = pb.TokenEvent(request_id="r", token_ids=b"1234")
    last = pb.TokenEvent(request_id="r", finish_reason=1)
    failed = pb.TokenEvent(request_id="r", failure=pb.Failure(message="no"))
    assert _may_be_lost(pb.GenerateDown(events=[token]))
    for kept in (
        pb.GenerateDown(events=[token, last]),
        pb.GenerateDown(events=[failed]),
        pb.GenerateDown(events=[token], state=pb.PoolState()),
        pb.GenerateDown(),
        pb.WorkDown(),
    ):
        assert not _may_be_lost(kept)


class Silent:
    """Hears one message, waits for another, and gives up as the service does."""

    def __init__(self) -> None:
        self.ended = ""
        self.at = 0.0

    async def __call__(self, client: Asking, stub: Any) -> None:
        try:
            async for _ in received(aiter(stub.Work(_one_and_wait(), metadata=())), 1.0):
                pass
        except PeerTimeoutError:
            self.ended, self.at = "silence", client.timeline.now
            raise


async def _one_and_wait() -> Any:
    yield pb.WorkUp(register=pb.Register(incarnation=1))
    await asyncio.Event().wait()


def _look(world: World) -> None:
    patience = Patience(world.network, 1.0)

    def look() -> None:
        patience.look()
        world.timeline.at(world.timeline.now + patience.every_s, look)

    look()


def asking(world: World) -> Silent:
    silent = Silent()
    client = world.client(silent)
    client.world.silence_s = 1.0
    return silent


def test_who_says_nothing_is_given_up_in_time(world: World) -> None:
    silent = asking(world)
    world.run(3.0)
    assert silent.ended == "silence"
    assert 1.0 < silent.at < 1.2


def test_patience_without_end_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence.Watchdog, "_look", lambda self: None)
    asking(world)
    _look(world)
    with pytest.raises(Violation, match=r"^\(h\) (client|server) has heard nothing"):
        world.run(5.0)


def test_impatience_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    look = silence.Watchdog._look

    def impatient(self: silence.Watchdog) -> None:
        self._num_looks = silence.LOOKS
        look(self)

    monkeypatch.setattr(silence.Watchdog, "_look", impatient)
    asking(world)
    with pytest.raises(Violation, match=r"^\(h\) client gives up who was heard 0\.09"):
        world.run(5.0)


def test_a_replica_that_was_heard_may_not_be_left_out(world: World) -> None:
    patience = Patience(world.network, 1.0)
    asking(world)
    world.run(0.2)
    patience.left_out("another")
    with pytest.raises(Violation, match=r"^\(h\) client is given up"):
        patience.left_out("client")
    world.run(0.8)
    patience.left_out("client")


def test_what_the_service_did_not_foresee_is_a_violation(world: World) -> None:
    import logging

    logger = logging.getLogger("deployments.anything")
    left: list[str] = []
    with no_surprises(world.timeline, left.append):
        logger.warning(
            "deregistering %s: %s", "replica", PeerTimeoutError("no message was received")
        )
        logger.warning("as foreseen")
        assert (left, world.timeline.failure) == (["replica"], None)
        try:
            raise KeyError("what")
        except KeyError:
            logger.exception("the stream broke")
    assert str(world.timeline.failure) == (
        "(l) deployments.anything says the stream broke: KeyError('what')"
    )
