"""Virtual time, and processes that live in it: they compute, crash, stop and continue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter
from random import Random

from deployments.simulation.record import Violation
from deployments.simulation.virtual_loop import VirtualLoop

Call = Callable[[], object]

_NOW_AND_THEN = 8
"""Number of events between two checks of whether all is over."""


class Timeline:
    """Planned calls in order of time. Calls at the same time happen in the order of planning. Only
    turns of processes that are ready at the same time come in random order."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.clock: Callable[[], float] = partial(attrgetter("now"), self)
        """Returns `now`. Called ten times per message."""
        self.num_run = 0
        self.failure: BaseException | None = None
        """First error that no process may raise; it ends the world."""
        self.draw = random.random
        self._planned: list[tuple[float, float, int, Call, Process | None, int]] = []
        """Planned calls, each with the process that it belongs to and that process's life."""
        self._num_planned = 0

    def at(self, time: float, call: Call, process: Process | None = None) -> None:
        life = 0 if process is None else process.life
        heappush(self._planned, (time, 0.0, self._num_planned, call, process, life))
        self._num_planned += 1

    def fail(self, error: BaseException) -> None:
        """End the world with `error`, unless an earlier error has ended it."""
        if self.failure is None:
            self.failure = error

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Wraps every check that the service's code calls. A violation ends the world, even if the
        service catches it."""
        try:
            yield
        except Violation as violation:
            self.fail(violation)
            raise

    def run_next(self) -> bool:
        """Let the next planned call happen. Return False when nothing is planned."""
        if not self._planned:
            return False
        self.now, _, _, call, process, life = heappop(self._planned)
        self.num_run += 1
        if process is None:
            call()
        elif process.life == life:
            if process.is_stopped:
                process.missed.append(call)
            else:
                call()
        if self.failure is not None:
            raise self.failure
        return True

    def run_until(self, is_over: Callable[[], bool], deadline: float) -> bool:
        """Run planned calls until `is_over`, which is checked every few calls. Return False when
        nothing is planned, or `deadline` passes first."""
        while not is_over():
            for _ in range(_NOW_AND_THEN):
                if not self.run_next():
                    return False
            if self.now > deadline:
                return False
        return True


class Process:
    """A process. Calls planned through it happen in its present life only, and not while it is
    stopped."""

    def __init__(self, timeline: Timeline, name: str, step_s: float = 0.0) -> None:
        """`step_s` is the duration of an iteration of its event loop, in seconds."""
        self.timeline = timeline
        self.name = name
        self.is_up = False
        self.is_stopped = False
        self.life = 0
        self.loop: VirtualLoop
        """Event loop of its present life."""
        self.busy_s = 0.0
        """Seconds that its loop was charged in addition to its iterations."""
        self.had_wrong_clock = False
        self.stood_s = 0.0
        """Total seconds for which it was stopped."""
        self.missed: deque[Call] = deque()
        """Calls that came while it was stopped."""
        self.graves: list[VirtualLoop] = []
        """Loops of earlier lives."""
        self._step_s = step_s
        self._free_at = 0.0
        self._stopped_at = 0.0
        self._clock_rate = 1.0
        self._own_s = self._set_at = 0.0
        """Reading of its own clock when the clock was last set, and the world's time of that."""

    @property
    def clock_rate(self) -> float:
        """Seconds of its own clock per second of the world's clock."""
        return self._clock_rate

    @clock_rate.setter
    def clock_rate(self, rate: float) -> None:
        self._own_s, self._set_at = self.clock(), self.timeline.now
        self._clock_rate = rate

    @property
    def ran_s(self) -> float:
        """Seconds for which it was not stopped, by the world's clock."""
        return self.timeline.now - self.stood_s

    def clock(self) -> float:
        """Return the time of its own clock."""
        return self._own_s + (self.timeline.now - self._set_at) * self._clock_rate

    def at(self, time: float, call: Call) -> None:
        timeline = self.timeline  # as its own `at`: nearly all is planned here
        heappush(timeline._planned, (time, 0.0, timeline._num_planned, call, self, self.life))
        timeline._num_planned += 1

    def after_own(self, delay: float, call: Call) -> None:
        """Plan `call` after `delay` seconds of its own clock."""
        self.at(self.timeline.now + max(delay, 0.0) / self._clock_rate, call)

    def plan_turn(self, turn: Call) -> None:
        """Plan a turn of its loop as soon as its core is free."""
        timeline = self.timeline
        time = max(timeline.now, self._free_at)
        self._free_at = time + self._step_s
        number = timeline._num_planned
        heappush(timeline._planned, (time, timeline.draw(), number, turn, self, self.life))
        timeline._num_planned += 1

    def spend(self, seconds: float) -> None:
        """Charge work to its one core; its next turn waits for it."""
        self._free_at = max(self._free_at, self.timeline.now) + seconds
        self.busy_s += seconds

    def from_thread(self, call: Call) -> None:
        """Run `call` in the loop, as a thread of the process asks for it."""
        call()

    def uncaught(self, error: BaseException) -> None:
        """End the world with an error that the process has not caught."""
        self.timeline.fail(error)

    def start(self) -> None:
        """Start a new life."""
        assert not self.is_up, f"{self.name} is up already"
        self.is_up = True
        self.loop = VirtualLoop(self)  # type: ignore[abstract]  # as much of it as asyncio needs
        self.loop.enter()
        self.main()

    def main(self) -> None:
        """Start the process's work in its loop."""
        raise NotImplementedError

    def crash(self) -> None:
        """End the process, and lose everything that it had in memory."""
        self.is_up = self.is_stopped = False
        self.life += 1
        self.missed.clear()
        self.loop.drop()
        self.graves.append(self.loop)

    def stop(self) -> None:
        """Stop the process (SIGSTOP); everything that comes waits."""
        if not self.is_stopped:
            self._stopped_at = self.timeline.now
        self.is_stopped = True

    def go_on(self) -> None:
        """Continue the process (SIGCONT). Calls that came meanwhile happen now, in order."""
        if self.is_stopped:
            self.stood_s += self.timeline.now - self._stopped_at
        self.is_stopped = False
        while self.missed and not self.is_stopped:
            self.missed.popleft()()
