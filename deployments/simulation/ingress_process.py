"""An ingress as a process: the resume logic of ingress/pool_client.py over a stream that breaks."""

from __future__ import annotations

from typing import Protocol

from deployments.coordinator.outbox import Delivery, Flush, PoolState
from deployments.errors import PoolUnavailableError, error_of
from deployments.ingress.resuming import OpenRequests
from deployments.simulation.client import AWAY
from deployments.simulation.connected import Connected, Surroundings
from deployments.simulation.messages import Abort, Submit
from specdec_core.request import Request, TokenEvent


class Listener(Protocol):
    """The client of one request."""

    request: Request

    def hear(self, event: TokenEvent) -> None: ...

    def fail(self, error: Exception) -> None: ...


class IngressProcess(Connected):
    """One ingress: the real book of open requests over a stream that breaks."""

    def __init__(self, world: Surroundings, name: str, resume_timeout_s: float) -> None:
        super().__init__(world, name)
        self.book = OpenRequests()
        self.listeners: dict[str, Listener] = {}
        self.takes_requests = True
        self._resume_timeout_s = resume_timeout_s
        self._state: PoolState | None = None
        self._lost_at = 0.0

    @property
    def is_connected(self) -> bool:
        """The coordinator has answered, too."""
        return self._state is not None and super().is_connected

    def start(self) -> None:
        super().start()
        self._lost_at = self.timeline.now
        self.open_stream()

    def crash(self) -> None:
        """Every connection of its clients breaks."""
        super().crash()
        self._state = None
        self.book = OpenRequests()
        listeners, self.listeners = self.listeners, {}
        for listener in listeners.values():
            listener.fail(ConnectionError("the ingress is gone"))

    def submit(self, listener: Listener) -> None:
        self.listeners[listener.request.request_id] = listener
        self.book.begin(listener.request, was_sent=self._state is not None)
        self._send(listener.request, resume=False)

    def stop_taking(self) -> None:
        """Nothing is routed here any more."""
        self.takes_requests = False

    def cancel(self, request_id: str) -> None:
        """The client has gone."""
        if self.book.end(request_id):
            del self.listeners[request_id]
            if self._state is not None and self.stream is not None:
                self.stream.up(Abort(request_id))

    def open_stream(self) -> None:
        if self.timeline.now - self._lost_at > self._resume_timeout_s:
            for request_id in self.book.end_all():
                self.listeners.pop(request_id).fail(PoolUnavailableError(AWAY))
        self.stream = self.connect(self.world.coordinator.accept_ingress)
        if self.stream is not None:
            self.stream.hear_down = self._hear
            self.stream.lost_down = self.stream_lost

    def stream_lost(self) -> None:
        if self._state is not None:
            self._lost_at = self.timeline.now
        self._state = None
        self.forget_stream()
        self.reconnect_later()

    def _hear(self, flush: Flush) -> None:
        if self.listening is not None:
            self.listening.hear()
        if self._state is None:
            self.connected()
            for request, was_sent in self.book.send_all():
                if self.stream is not None:
                    self.stream.up(Submit(request, was_sent))
        if flush.state is not None:
            self._state = flush.state
        for delivery in flush.deliveries:
            self._take(delivery)

    def _take(self, delivery: Delivery) -> None:
        event = delivery.event
        if event.request_id not in self.book:
            return
        if delivery.failure is not None:
            self.book.end(event.request_id)
            self.listeners.pop(event.request_id).fail(error_of(delivery.failure))
            return
        news = self.book.take(event)
        if isinstance(news, Request):
            self._send(news, resume=True)
        elif news is not None:
            self.listeners[event.request_id].hear(news)
            if news.finish_reason is not None:
                del self.listeners[event.request_id]

    def _send(self, request: Request, *, resume: bool) -> None:
        """Without a stream nothing is lost: whatever is open is submitted to the next one."""
        if self._state is not None and self.stream is not None:
            self.stream.up(Submit(request, resume))
