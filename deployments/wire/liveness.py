"""How one end of a stream notices that the other one hangs: a stopped process closes nothing, so
both ends of a coordinator's stream beat, and whoever hears nothing gives the other up.

A stream has one timer, however many messages it has: it costs each of them 0.2 us, where a timer of
its own took 5. Time is counted in looks of that timer: who stood still himself has looked once, and
reads what has come meanwhile before he looks again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TypeVar

HEARTBEAT_S = 1.0
SILENCE_S = 10.0
"""Ten missed beats. Whoever was wrongly given up pays with a replay."""
LOOKS = 10
"""Of a watch within the time that it allows."""

T = TypeVar("T")


class PeerTimeoutError(ConnectionError):
    """The other end has said nothing for SILENCE_S."""


class Patience:
    """Says when one of several waits has taken too long, counted in looks. No clock, no loop."""

    def __init__(self) -> None:
        self._is_waiting = False
        self._num_looks = 0

    def begin(self) -> None:
        """The wait begins."""
        self._is_waiting = True
        self._num_looks = 0

    def pause(self) -> None:
        """What was waited for has come."""
        self._is_waiting = False

    def look(self) -> bool:
        """Whether to give up: once for each wait. The first look may come right behind the
        beginning."""
        self._num_looks += 1
        is_over = self._is_waiting and self._num_looks > LOOKS
        if is_over:
            self._is_waiting = False
        return is_over


class Watchdog(Patience):
    """Cancels the task that made it when one of its waits takes `limit_s` of a loop that runs, and
    at most a tenth more."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        task = asyncio.current_task()
        assert task is not None, "who waits is a task"
        self._task = task
        self._num_cancelled = task.cancelling()
        self._has_given_up = False
        self._timer = _Timer(limit_s / LOOKS, self._look)

    def end(self) -> None:
        self._timer.end()

    def takes_back(self) -> bool:
        """Whether the cancellation that has reached the task is the watch's, and nobody else's."""
        return self._has_given_up and self._task.uncancel() <= self._num_cancelled

    def _look(self) -> None:
        if self.look():
            self._has_given_up = True
            self._task.cancel()


def beat_s(silence_s: float | None = None) -> float:
    """Between two beats for a peer that waits for so long; None: for SILENCE_S."""
    return HEARTBEAT_S if silence_s is None else silence_s / LOOKS


async def heard(messages: AsyncIterator[T], silence_s: float | None = None) -> AsyncGenerator[T]:
    """`messages` until their end. Raises PeerTimeoutError after `silence_s`; None: after SILENCE_S.
    What a message takes here is no silence."""
    limit_s = SILENCE_S if silence_s is None else silence_s
    watch = Watchdog(limit_s)
    try:
        watch.begin()
        async for message in messages:
            watch.pause()
            yield message
            watch.begin()
    except asyncio.CancelledError:
        if watch.takes_back():
            raise PeerTimeoutError(f"nothing was heard for {limit_s:g} s") from None
        raise
    finally:
        watch.end()


@contextlib.contextmanager
def beating(beat: Callable[[], None], silence_s: float | None = None) -> Iterator[None]:
    """Inside, `beat` is called every `beat_s`, whatever else is said."""
    timer = _Timer(beat_s(silence_s), beat)
    try:
        yield
    finally:
        timer.end()


def _nothing() -> None:
    pass


class _Timer:
    """Rings every so many seconds; a loop that stood still hears it once."""

    def __init__(self, every_s: float, then: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._every_s = every_s
        self._then = then
        self._next = self._loop.call_later(every_s, self._ring)

    def end(self) -> None:
        """Lets go of `then`, whose owner may hold the timer: a cycle would keep a whole request
        until somebody looks for garbage."""
        self._next.cancel()
        self._then = _nothing

    def _ring(self) -> None:
        self._next = self._loop.call_later(self._every_s, self._ring)
        self._then()
