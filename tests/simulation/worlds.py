"""Small worlds: processes that run what a test gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any

from deployments.simulation.calls import Channel, Server
from deployments.simulation.network import Delays, Host, Network, Stream
from deployments.simulation.peer import Peer, Surroundings
from deployments.simulation.record import Record
from deployments.simulation.timeline import Process, Timeline
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc

DELAY_S = 0.001


class Running(Process):
    """Runs one coroutine."""

    def __init__(
        self, timeline: Timeline, body: Callable[[Running], Coroutine[Any, Any, None]]
    ) -> None:
        super().__init__(timeline, "p", step_s=0.0)
        self._body = body

    def main(self) -> None:
        self.loop.create_task(self._body(self))


class Echo(Host):
    """A server that answers each Register with its incarnation, `extra` times more."""

    def __init__(self, world: World) -> None:
        super().__init__(world.timeline, "server")
        self._world = world
        self.heard: list[int] = []
        self.ends: list[str] = []
        self.extra = 0

    def main(self) -> None:
        self._server = Server(wrote=lambda stream, message: None)
        pb_grpc.add_CoordinatorServiceServicer_to_server(self, self._server)

    def accept(self, stream: Stream) -> None:
        self.loop.call_soon(self._server.accept, stream)

    def crash(self) -> None:
        super().crash()
        self._world.network.died(self)

    async def Work(self, messages: AsyncIterator[pb.WorkUp], context: Any) -> AsyncIterator[Any]:
        try:
            async for message in messages:
                number = message.register.incarnation
                self.heard.append(number)
                if number == 99:
                    await context.abort(_code("FAILED_PRECONDITION"), "no such number")
                for _ in range(1 + self.extra):
                    yield pb.WorkDown(registered=pb.Registered(epoch=number))
        finally:
            self.ends.append("over")

    Generate = PoolStatus = Work


def _code(name: str) -> Any:
    import grpc

    return grpc.StatusCode[name]


class Asking(Peer):
    """A client that runs one coroutine with its stub."""

    def __init__(self, world: World, body: Callable[[Asking, Any], Any]) -> None:
        surroundings = Surroundings(world.timeline, world.network, world.random, world.server)  # type: ignore[arg-type]
        super().__init__(surroundings, "client")
        self._body = body

    def main(self) -> None:
        self.loop.create_task(self._run())

    async def _run(self) -> None:
        async with Channel(self, self.world.coordinator) as channel:
            await self._body(self, pb_grpc.CoordinatorServiceStub(channel))


class World:
    """A network, a server, and a client once there is something for it to do."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.timeline = Timeline(self.random)
        self.record = Record(self.timeline.clock, traces=False)
        delays = Delays(DELAY_S, DELAY_S)
        self.network = Network(self.timeline, self.random, delays, self.record)
        self.server = Echo(self)
        self.server.start()

    def client(self, body: Callable[[Asking, Any], Any]) -> Asking:
        client = Asking(self, body)
        client.start()
        return client

    def run(self, seconds: float) -> None:
        self.timeline.run_until(lambda: self.timeline.now >= seconds, seconds)


async def numbers(*given: int) -> AsyncIterator[pb.WorkUp]:
    for number in given:
        yield pb.WorkUp(register=pb.Register(incarnation=number))
