"""Detects that the other end of a stream hangs.

A stopped process closes nothing. Both ends of a coordinator's stream therefore send heartbeats, and
an end that receives nothing gives the other end up.

A stream has one timer, however many messages it has. The timer costs each message 0.2 us, where a
timer per message took 5 us. Time is counted in looks of that timer. A process that was itself
paused has looked once, and reads what has arrived meanwhile before it looks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TypeVar

_FIRST_S = 0.05
_LONGEST_S = 1.0


class Backoff:
    """Waits between attempts. Jitter keeps a hundred replicas from returning in one instant."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._wait_s = _FIRST_S
        self._uniform = uniform

    def next_wait_s(self) -> float:
        wait_s = self._wait_s
        self._wait_s = min(2 * wait_s, _LONGEST_S)
        return wait_s * self._uniform(0.5, 1.0)

    def succeeded(self) -> None:
        self._wait_s = _FIRST_S


HEARTBEAT_S = 1.0
SILENCE_S = 10.0
"""Seconds of silence after which a peer is given up: ten missed heartbeats.

A peer that was given up wrongly pays with a replay.
"""
LOOKS = 10
"""Looks of a watchdog within the time that it allows."""

T = TypeVar("T")


class PeerTimeoutError(ConnectionError):
    """The other end has sent nothing for SILENCE_S."""


class Watchdog:
    """Cancels the task that made it if one of its waits takes `limit_s`, or at most a tenth more.

    Time counts only while the loop runs.
    """

    def __init__(self, limit_s: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "who waits is a task"
        self._task = task
        self._num_cancelled = task.cancelling()
        self._has_given_up = False
        self._is_waiting = False
        self._num_looks = 0
        self._timer = _Timer(limit_s / LOOKS, self._look)

    def begin(self) -> None:
        """Begin a wait."""
        self._is_waiting = True
        self._num_looks = 0

    def pause(self) -> None:
        """End the wait, after what was waited for has come."""
        self._is_waiting = False

    def end(self) -> None:
        self._timer.end()

    def takes_back(self) -> bool:
        """Return whether the cancellation that has reached the task is only the watchdog's."""
        return self._has_given_up and self._task.uncancel() <= self._num_cancelled

    def _look(self) -> None:
        """Give up a wait that is too long, once. The first look may come right after `begin`."""
        self._num_looks += 1
        if self._is_waiting and self._num_looks > LOOKS:
            self._is_waiting = False
            self._has_given_up = True
            self._task.cancel()


def heartbeat_interval_s(silence_s: float | None = None) -> float:
    """Return the seconds between two heartbeats for a peer that waits `silence_s`, or SILENCE_S."""
    return HEARTBEAT_S if silence_s is None else silence_s / LOOKS


async def received(messages: AsyncIterator[T], silence_s: float | None = None) -> AsyncGenerator[T]:
    """Yield `messages` until their end. Raises PeerTimeoutError after `silence_s` of silence.

    None: after SILENCE_S. The time that a message takes here does not count as silence.
    """
    with _watched(SILENCE_S if silence_s is None else silence_s) as watch:
        watch.begin()
        async for message in messages:
            watch.pause()
            yield message
            watch.begin()


@contextlib.contextmanager
def _watched(limit_s: float) -> Iterator[Watchdog]:
    """Watch the waits inside the context. Raises PeerTimeoutError for one that is too long."""
    watch = Watchdog(limit_s)
    try:
        yield watch
    except asyncio.CancelledError:
        if watch.takes_back():
            raise PeerTimeoutError(f"no message was received for {limit_s:g} s") from None
        raise
    finally:
        watch.end()


@contextlib.contextmanager
def heartbeats(send: Callable[[], None], silence_s: float | None = None) -> Iterator[None]:
    """Call `send` every `heartbeat_interval_s` inside the context, whatever else is sent."""
    timer = _Timer(heartbeat_interval_s(silence_s), send)
    try:
        yield
    finally:
        timer.end()


def _nothing() -> None:
    pass


class _Timer:
    """Calls `then` every `every_s` seconds, and only once after a pause of the loop."""

    def __init__(self, every_s: float, then: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._every_s = every_s
        self._then = then
        self._next = self._loop.call_later(every_s, self._ring)

    def end(self) -> None:
        """Stop, and release `then`, whose owner may hold the timer.

        Such a cycle would keep a whole request until garbage is collected.
        """
        self._next.cancel()
        self._then = _nothing

    def _ring(self) -> None:
        self._next = self._loop.call_later(self._every_s, self._ring)
        self._then()
