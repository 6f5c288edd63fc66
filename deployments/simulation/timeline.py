"""Virtual time, and processes that live in it: they compute, crash, stop and go on."""

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
"""Events between two looks whether all is over."""


class Timeline:
    """What happens next: by time, and in the order of planning where times are equal. Turns of
    processes that are ready at the same time come in any order."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.clock: Callable[[], float] = partial(attrgetter("now"), self)
        """Tells `now`, ten times a message."""
        self.num_run = 0
        self.failure: BaseException | None = None
        """What some process has raised and nobody may raise: it ends the world."""
        self.draw = random.random
        self._planned: list[tuple[float, float, int, Call, Process | None, int]] = []
        """With the process whose matter it is, and its life."""
        self._num_planned = 0

    def at(self, time: float, call: Call, process: Process | None = None) -> None:
        life = 0 if process is None else process.life
        heappush(self._planned, (time, 0.0, self._num_planned, call, process, life))
        self._num_planned += 1

    def fail(self, error: BaseException) -> None:
        """The first one counts."""
        if self.failure is None:
            self.failure = error

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around every check that the service's code calls: what it raises ends the world, whoever
        catches it."""
        try:
            yield
        except Violation as violation:
            self.fail(violation)
            raise

    def run_next(self) -> bool:
        """Let the next thing happen; False when nothing is planned."""
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
        """Let things happen until it is over, which is asked now and then; False when nothing is
        planned, or `deadline` passes before."""
        while not is_over():
            for _ in range(_NOW_AND_THEN):
                if not self.run_next():
                    return False
            if self.now > deadline:
                return False
        return True


class Process:
    """What is planned through it happens in this life of it alone, and not while it is stopped."""

    def __init__(self, timeline: Timeline, name: str, step_s: float = 0.0) -> None:
        """`step_s`: what a turn of its loop takes."""
        self.timeline = timeline
        self.name = name
        self.is_up = False
        self.is_stopped = False
        self.life = 0
        self.loop: VirtualLoop
        """Of its present life."""
        self.busy_s = 0.0
        """That its loop was charged for more than its turns."""
        self.had_wrong_clock = False
        self.stood_s = 0.0
        """That it was stopped."""
        self.missed: deque[Call] = deque()
        """What came while it was stopped."""
        self.graves: list[VirtualLoop] = []
        """Loops of earlier lives."""
        self._step_s = step_s
        self._free_at = 0.0
        self._stopped_at = 0.0
        self._clock_rate = 1.0
        self._own_s = self._set_at = 0.0
        """What its clock told when it was set, and when that was."""

    @property
    def clock_rate(self) -> float:
        """Seconds of its own clock in one of the world's."""
        return self._clock_rate

    @clock_rate.setter
    def clock_rate(self, rate: float) -> None:
        self._own_s, self._set_at = self.clock(), self.timeline.now
        self._clock_rate = rate

    @property
    def ran_s(self) -> float:
        """For how long it was not stopped, by the world's clock."""
        return self.timeline.now - self.stood_s

    def clock(self) -> float:
        """Its own."""
        return self._own_s + (self.timeline.now - self._set_at) * self._clock_rate

    def at(self, time: float, call: Call) -> None:
        timeline = self.timeline  # as its own `at`: nearly all is planned here
        heappush(timeline._planned, (time, 0.0, timeline._num_planned, call, self, self.life))
        timeline._num_planned += 1

    def after_own(self, delay: float, call: Call) -> None:
        """So many seconds of its own clock from now."""
        self.at(self.timeline.now + max(delay, 0.0) / self._clock_rate, call)

    def plan_turn(self, turn: Call) -> None:
        """As soon as its core is free."""
        timeline = self.timeline
        time = max(timeline.now, self._free_at)
        self._free_at = time + self._step_s
        number = timeline._num_planned
        heappush(timeline._planned, (time, timeline.draw(), number, turn, self, self.life))
        timeline._num_planned += 1

    def spend(self, seconds: float) -> None:
        """Charge work to its one core: its next turn waits for it."""
        self._free_at = max(self._free_at, self.timeline.now) + seconds
        self.busy_s += seconds

    def from_thread(self, call: Call) -> None:
        """`call` in the loop, as a thread of the process asks for it."""
        call()

    def uncaught(self, error: BaseException) -> None:
        """An error that nobody in the process has caught."""
        self.timeline.fail(error)

    def start(self) -> None:
        """A new life."""
        assert not self.is_up, f"{self.name} is up already"
        self.is_up = True
        self.loop = VirtualLoop(self)  # type: ignore[abstract]  # as much of it as asyncio needs
        self.loop.enter()
        self.main()

    def main(self) -> None:
        """What the process does, in its loop."""
        raise NotImplementedError

    def crash(self) -> None:
        """The process is gone, with everything that it had in mind."""
        self.is_up = self.is_stopped = False
        self.life += 1
        self.missed.clear()
        self.loop.drop()
        self.graves.append(self.loop)

    def stop(self) -> None:
        """SIGSTOP: everything that comes waits."""
        if not self.is_stopped:
            self._stopped_at = self.timeline.now
        self.is_stopped = True

    def go_on(self) -> None:
        """SIGCONT: what came meanwhile happens now, in order."""
        if self.is_stopped:
            self.stood_s += self.timeline.now - self._stopped_at
        self.is_stopped = False
        while self.missed and not self.is_stopped:
            self.missed.popleft()()
