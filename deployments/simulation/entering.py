"""An ingress as a process: the service's scheduler client, and one task per client."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Protocol

from deployments.ingress.scheduler_client import SchedulerClient
from deployments.ingress.streams import events_of
from deployments.simulation.peer import Peer, Surroundings
from deployments.simulation.record import Violation
from specdec_core.request import Request, TokenEvent


class Listener(Protocol):
    """The client of one request."""

    request: Request

    def hear(self, event: TokenEvent) -> None: ...

    def fail(self, error: Exception) -> None: ...


class IngressProcess(Peer):
    """One ingress."""

    def __init__(self, world: Surroundings, name: str, resume_timeout_s: float) -> None:
        super().__init__(world, name)
        self.scheduler_client: SchedulerClient
        self.listeners: dict[str, Listener] = {}
        self.takes_requests = True
        self.num_divergences = 0
        """Divergences found in earlier lives."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._resume_timeout_s = resume_timeout_s

    @property
    def is_connected(self) -> bool:
        """Return True if the coordinator has also answered."""
        return self.is_up and self.scheduler_client.state is not None and super().is_connected

    @property
    def num_open(self) -> int:
        return len(self.listeners)

    def main(self) -> None:
        self.scheduler_client = SchedulerClient(
            self.resolve,
            clock=self.clock,
            resume_timeout_s=self._resume_timeout_s,
            silence_s=self.world.silence_s,
            uniform=self.world.random.uniform,
        )
        self.loop.create_task(self.scheduler_client.run())

    def crash(self) -> None:
        """Break every connection of the ingress's clients."""
        super().crash()
        self.num_divergences += self.scheduler_client.num_divergences
        self._tasks.clear()
        listeners, self.listeners = self.listeners, {}
        for listener in listeners.values():
            listener.fail(ConnectionError("the ingress has ended"))

    def submit(self, listener: Listener) -> None:
        self.listeners[listener.request.request_id] = listener
        self.at(self.timeline.now, partial(self._begin, listener))

    def stop_taking(self) -> None:
        """Stop routing requests to this ingress."""
        self.takes_requests = False

    def cancel(self, request_id: str) -> None:
        """Abort the request of a client that has gone."""
        if self.listeners.pop(request_id, None) is not None:
            self.at(self.timeline.now, partial(self._cancel, request_id))

    def _begin(self, listener: Listener) -> None:
        request_id = listener.request.request_id
        if request_id in self.listeners:
            self._tasks[request_id] = self.loop.create_task(self._serve(listener))

    def _cancel(self, request_id: str) -> None:
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()

    async def _serve(self, listener: Listener) -> None:
        request = listener.request
        asked = self.scheduler_client.generate(request)
        try:
            async with contextlib.aclosing(events_of(request, asked)) as events:
                async for event in events:
                    self._tell(listener, event)
        except Violation:
            pass  # the world has ended
        except Exception as error:
            self._fail(listener, error)
        finally:
            del self._tasks[request.request_id]

    def _tell(self, listener: Listener, event: TokenEvent) -> None:
        request_id = listener.request.request_id
        if event.finish_reason is not None:
            self.listeners.pop(request_id, None)
        with self.timeline.watched():
            listener.hear(event)

    def _fail(self, listener: Listener, error: Exception) -> None:
        if self.listeners.pop(listener.request.request_id, None) is None:
            return
        with self.timeline.watched():
            listener.fail(error)
