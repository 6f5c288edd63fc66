"""Virtual time, and processes that live in it: they crash, stop and go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter

Call = Callable[[], object]


class Timeline:
    """What happens next: by time, and in the order of planning where times are equal."""

    def __init__(self) -> None:
        self.now = 0.0
        self.clock: Callable[[], float] = partial(attrgetter("now"), self)
        """Tells `now`, ten times a message."""
        self.num_run = 0
        self._planned: list[tuple[float, int, Call, Process | None, int]] = []
        """With the process whose matter it is, and its life."""
        self._num_planned = 0

    def at(self, time: float, call: Call, process: Process | None = None) -> None:
        life = 0 if process is None else process.life
        heappush(self._planned, (time, self._num_planned, call, process, life))
        self._num_planned += 1

    def run_next(self) -> bool:
        """Let the next thing happen; False when nothing is planned."""
        if not self._planned:
            return False
        self.now, _, call, process, life = heappop(self._planned)
        self.num_run += 1
        if process is None:
            call()
        elif process.life == life:
            if process.is_stopped:
                process.missed.append(call)
            else:
                call()
        return True

    def run_until(self, is_over: Callable[[], bool], deadline: float) -> bool:
        """Let things happen until it is over; False when nothing is planned, or `deadline` passes
        before. As `run_next`, without a call for each of them."""
        planned = self._planned
        while not is_over():
            if not planned:
                return False
            self.now, _, call, process, life = heappop(planned)
            self.num_run += 1
            if process is None:
                call()
            elif process.life == life:
                if process.is_stopped:
                    process.missed.append(call)
                else:
                    call()
            if self.now > deadline:
                return False
        return True


class Process:
    """What is planned through it happens in this life of it alone, and not while it is stopped."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        self.timeline = timeline
        self.name = name
        self.is_up = False
        self.is_stopped = False
        self.life = 0
        self.clock_rate = 1.0
        """Seconds of its own clock in one of the world's."""
        self.had_wrong_clock = False
        self.stood_s = 0.0
        """That it was stopped."""
        self._stopped_at = 0.0
        self.missed: deque[Call] = deque()
        """What came while it was stopped."""

    def at(self, time: float, call: Call) -> None:
        timeline = self.timeline  # as its own `at`: nearly all is planned here
        heappush(timeline._planned, (time, timeline._num_planned, call, self, self.life))
        timeline._num_planned += 1

    def after(self, delay: float, call: Call) -> None:
        self.at(self.timeline.now + delay, call)

    def start(self) -> None:
        assert not self.is_up, f"{self.name} is up already"
        self.is_up = True

    def crash(self) -> None:
        """The process is gone, with everything that it had in mind."""
        self.is_up = self.is_stopped = False
        self.life += 1
        self.missed.clear()

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
