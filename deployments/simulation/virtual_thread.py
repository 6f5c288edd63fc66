"""The thread of a simulated process: an executor whose calls take virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from deployments.simulation.step_costs import Accelerator
from deployments.simulation.timeline import Call, Process


class VirtualThread(Executor):
    """The thread of one life of `process`. A call is carried out when it begins. Its messages to
    the loop arrive when it ends."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: deque[Call] = deque()
        self._effects: list[Call] = []
        self._is_busy = False
        self.is_inside = False
        """True while a call of the thread is carried out."""
        self.now = 0.0
        """Virtual time that the call has reached."""

    @property
    def is_idle(self) -> bool:
        return not self._is_busy

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call. The returned future is never completed; the call itself reports its
        result."""
        self._waiting.append(partial(fn, *args, **kwargs))
        if not self._is_busy:
            self._begin()
        return Future()

    def tell(self, call: Call) -> None:
        """Run `call` when the call being carried out has ended."""
        self._effects.append(call)

    def take(self, accelerator: Accelerator, seconds: float) -> None:
        """Spend `seconds` on `accelerator` as a pass of the call being carried out."""
        self.now = accelerator.take(self.now, seconds)

    def _begin(self) -> None:
        self._is_busy = True
        self._process.at(self._process.timeline.now, self._run)

    def _run(self) -> None:
        self.now = self._process.timeline.now
        self.is_inside = True
        try:
            self._waiting.popleft()()
        finally:
            self.is_inside = False
        effects, self._effects = self._effects, []
        self._process.at(self.now, partial(self._end, effects))

    def _end(self, effects: list[Call]) -> None:
        for effect in effects:
            effect()
        if self._waiting:
            self._begin()
        else:
            self._is_busy = False
