"""One end of a stream that waits for the other one: the service's own patience, looked at in
virtual time, and what must hold of it."""

from __future__ import annotations

from collections.abc import Callable

from deployments.simulation.record import Violation
from deployments.simulation.timeline import Process
from deployments.wire.silence import LOOKS, Patience

_LEAST, _MOST = 0.5, 1.3
"""Times its limit that a silent peer is waited for: who is stopped meanwhile rings at once when it
goes on, and has run for less."""


class Ticker:
    """Calls `then` in equal steps of its process's clock; a process that stood still, once."""

    def __init__(self, process: Process, every_s: float, then: Callable[[], None]) -> None:
        self._process = process
        self._every_s = every_s
        self._then = then
        self._is_over = False
        self._plan()

    def end(self) -> None:
        self._is_over = True

    def _plan(self) -> None:
        self._process.after(self._every_s / self._process.clock_rate, self._ring)

    def _ring(self) -> None:
        if not self._is_over:
            self._plan()
            self._then()


class Listening(Ticker):
    """Gives the other end up, once, when it has been silent for `limit_s`."""

    def __init__(
        self,
        process: Process,
        limit_s: float,
        *,
        beat: Callable[[], None],
        give_up: Callable[[], None],
    ) -> None:
        """`beat` is called with every look: both take a tenth of the limit."""
        super().__init__(process, limit_s / LOOKS, self._look)
        self._limit_s = limit_s
        self._beat = beat
        self._give_up = give_up
        self._patience = Patience()
        self._is_reading = True
        self.hear()

    def hear(self) -> None:
        """A message has come, and is dealt with."""
        process = self._process
        self._heard_at = process.timeline.now - process.stood_s
        self._is_reading = True
        self._patience.begin()

    def pause(self) -> None:
        """What has come takes its time: until `hear` nothing is read."""
        self._is_reading = False
        self._patience.pause()

    def _look(self) -> None:
        self._beat()
        if self._is_over:
            return
        waited_s = self._process.timeline.now - self._process.stood_s - self._heard_at
        is_over = self._patience.look()
        self._check(is_over, waited_s)
        if is_over:
            self.end()
            self._give_up()

    def _check(self, gives_up: bool, waited_s: float) -> None:
        """(h) By the time that the process ran since: nobody is given up before it is time, and
        nobody is waited for much longer. A clock that ran at another speed says nothing."""
        process = self._process
        if process.had_wrong_clock or not self._is_reading:
            return
        if gives_up and waited_s < _LEAST * self._limit_s:
            raise Violation(f"(h) {process.name} gives up who was heard {waited_s:.3f} s ago")
        if not gives_up and waited_s > _MOST * self._limit_s:
            raise Violation(f"(h) {process.name} has heard nothing for {waited_s:.3f} s and waits")
