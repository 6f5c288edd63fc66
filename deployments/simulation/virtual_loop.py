"""An event loop on virtual time, one for each life of a simulated process.

Tasks, queues and timers of asyncio run on it as on any other. Ready callbacks run in turns, as in a
real loop. A turn takes the process some virtual time, in which the next turn fills. A crash drops
the loop. No `finally` of its tasks runs then, and no peer receives a last message.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from functools import partial
from typing import Any, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")


class LoopOwner(Protocol):
    """The simulated process that owns the loop."""

    def clock(self) -> float: ...

    def after_own(self, delay: float, call: Callable[[], object]) -> None: ...

    def plan_turn(self, turn: Callable[[], object]) -> None: ...

    def from_thread(self, call: Callable[[], object]) -> None: ...

    def uncaught(self, error: BaseException) -> None: ...


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one life of `process`."""

    def __init__(self, process: LoopOwner) -> None:
        self.is_over = False
        """True if its process has died."""
        self._process = process
        self._ready: deque[asyncio.Handle] = deque()
        self._is_planned = False
        self._dead: set[asyncio.Task[Any]] = set()
        """Tasks left by a crash. They are held until the world ends, because a collected task is
        closed."""

    @property
    def is_idle(self) -> bool:
        return not self._ready

    def enter(self) -> None:
        """Make this the running loop, until another one is or `leave_loops` is called."""
        if events._get_running_loop() is not self:
            events._set_running_loop(self)
            sys.set_asyncgen_hooks(finalizer=self._close_left)

    def drop(self) -> None:
        """Drop the loop; nothing of it ever runs again."""
        self.is_over = True
        self._dead = asyncio.all_tasks(self)
        self._ready.clear()

    def time(self) -> float:
        return self._process.clock()

    def call_soon(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_over:
            self._add(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedule `callback`. In a call of the process's thread, it is scheduled when that call
        ends."""
        handle = asyncio.Handle(callback, args, self, context)
        self._process.from_thread(lambda: self._add(handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._process.after_own(when - self.time(), lambda: self._add(timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Args], T],
        *args: *Args,
    ) -> asyncio.Future[T]:
        assert executor is not None, "a simulated process has the threads that it made"
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon_threadsafe(partial(_fail, future, error))
            else:
                self.call_soon_threadsafe(partial(_settle, future, result))

        executor.submit(run)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_over

    def is_closed(self) -> bool:
        return self.is_over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """End the world with an error that was not caught, or not retrieved before its task was
        collected."""
        error = context.get("exception")
        if error is not None and not self.is_over:
            self._process.uncaught(error)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing; the timer is skipped when its time comes."""

    def _add(self, handle: asyncio.Handle) -> None:
        if handle._cancelled:
            return
        self._ready.append(handle)
        if not self._is_planned:
            self._is_planned = True
            self._process.plan_turn(self._turn)

    def _turn(self) -> None:
        """Run what is ready by now. Callbacks that become ready meanwhile belong to the next
        turn."""
        ready = self._ready
        self.enter()
        for _ in range(len(ready)):
            if not ready:
                break  # its process has ended itself
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        if ready:
            self._process.plan_turn(self._turn)
        else:
            self._is_planned = False

    def _close_left(self, generator: AsyncGenerator[Any]) -> None:
        """Close an asynchronous generator that its loop has left, by a task, as asyncio does."""
        if not self.is_over:
            self.call_soon(self.create_task, generator.aclose())


def leave_loops() -> None:
    """Unset the running loop."""
    events._set_running_loop(None)
    sys.set_asyncgen_hooks(finalizer=None)


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
