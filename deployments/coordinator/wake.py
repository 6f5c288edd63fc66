"""Wake-up event of a loop that decides on events and at deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_MIN_SLEEP_S = 0.0005
"""Minimum seconds until a deadline that has passed is handled, so that streams are served
between."""


class WakeUp:
    """An event, and one alarm that sets it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._news = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = 0.0

    def set(self) -> None:
        self._news.set()

    def clear(self) -> None:
        self._news.clear()

    async def wait(self, deadline: float | None) -> None:
        """Wait until the event is set, or until `deadline` on the clock at the latest."""
        if deadline is not None:
            self._ring_by(deadline)
        await self._news.wait()

    def _ring_by(self, deadline: float) -> None:
        """Set the alarm to `deadline`. An alarm that is due earlier is left as it is, although
        every round moves the deadline on. One unneeded decision costs less than a new alarm for
        every round."""
        now = self._clock()
        due_s = max(deadline, now + _MIN_SLEEP_S)
        if self._alarm is not None:
            if self._alarm_s <= due_s:
                return
            self._alarm.cancel()
        self._alarm_s = due_s
        self._alarm = asyncio.get_running_loop().call_later(due_s - now, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.set()
