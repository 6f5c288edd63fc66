"""asyncio on virtual time: clocks, turns, stops, crashes, threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from deployments.simulation.step_costs import Accelerator
from deployments.simulation.timeline import Timeline
from deployments.simulation.virtual_loop import leave_loops
from deployments.simulation.virtual_thread import VirtualThread
from tests.simulation.worlds import Running


@pytest.fixture(autouse=True)
def _left() -> Iterator[None]:
    yield
    leave_loops()


@pytest.fixture
def timeline() -> Timeline:
    return Timeline(Random(0))


def run(timeline: Timeline, seconds: float = 100.0) -> None:
    while timeline.now < seconds and timeline.run_next():
        pass


def test_who_sleeps_wakes_when_its_own_clock_says_so(timeline: Timeline) -> None:
    woke: list[tuple[float, float]] = []

    async def body(process: Running) -> None:
        await asyncio.sleep(2.0)
        woke.append((timeline.now, asyncio.get_running_loop().time()))
        process.clock_rate = 4.0
        await asyncio.sleep(2.0)
        woke.append((timeline.now, process.clock()))

    Running(timeline, body).start()
    run(timeline)
    assert woke == [(2.0, 2.0), (2.5, 4.0)]


def test_a_timeout_ends_what_waits_too_long(timeline: Timeline) -> None:
    ended: list[float] = []

    async def body(process: Running) -> None:
        try:
            async with asyncio.timeout(0.5):
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append(timeline.now)

    Running(timeline, body).start()
    run(timeline)
    assert ended == [0.5]


def test_a_turn_takes_time_and_so_does_what_is_charged(timeline: Timeline) -> None:
    times: list[float] = []

    async def body(process: Running) -> None:
        times.append(timeline.now)
        await asyncio.sleep(0)
        times.append(timeline.now)
        process.spend(1.0)
        await asyncio.sleep(0)
        times.append(timeline.now)

    process = Running(timeline, body)
    process._step_s = 0.25
    process.start()
    run(timeline)
    assert times == pytest.approx([0.0, 0.25, 1.5])
    assert process.busy_s == 1.0


def test_a_stopped_process_does_it_all_when_it_goes_on(timeline: Timeline) -> None:
    woke: list[float] = []

    async def body(process: Running) -> None:
        for _ in range(3):
            await asyncio.sleep(1.0)
            woke.append(timeline.now)

    process = Running(timeline, body)
    process.start()
    timeline.at(1.5, process.stop)
    timeline.at(5.0, process.go_on)
    run(timeline)
    assert woke == [1.0, 5.0, 6.0]
    assert process.stood_s == 3.5


def test_a_crash_says_goodbye_to_nobody(timeline: Timeline) -> None:
    said: list[str] = []

    async def body(process: Running) -> None:
        try:
            await asyncio.sleep(10.0)
        finally:
            said.append("goodbye")

    process = Running(timeline, body)
    process.start()
    timeline.at(1.0, process.crash)
    run(timeline)
    assert said == []
    assert len(process.graves) == 1


def test_a_generator_that_is_left_is_closed_by_its_loop(timeline: Timeline) -> None:
    closed: list[float] = []

    async def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            closed.append(timeline.now)

    async def body(process: Running) -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1.0)

    Running(timeline, body).start()
    run(timeline)
    assert closed == [0.0]


def test_what_nobody_catches_ends_the_world(timeline: Timeline) -> None:
    async def body(process: Running) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    Running(timeline, body).start()
    with pytest.raises(ZeroDivisionError):
        run(timeline)


def test_who_is_ready_at_the_same_time_comes_in_any_order() -> None:
    def order(seed: int) -> list[int]:
        timeline, came = Timeline(Random(seed)), []

        def body_of(number: int) -> Any:
            async def body(process: Running) -> None:
                await asyncio.sleep(1.0)
                came.append(number)

            return body

        for number in range(4):
            Running(timeline, body_of(number)).start()
        run(timeline)
        return came

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 5


class Threaded(Running):
    """A process with a thread."""

    thread: VirtualThread

    def main(self) -> None:
        self.thread = VirtualThread(self)
        super().main()

    def from_thread(self, call: Any) -> None:
        if self.thread.is_inside:
            self.thread.tell(call)
        else:
            call()


def test_a_thread_does_one_thing_after_the_other_and_the_loop_hears_of_it_then(
    timeline: Timeline,
) -> None:
    heard: list[tuple[str, float]] = []
    device = Accelerator()

    def work(process: Threaded, name: str, seconds: float) -> str:
        process.thread.take(device, seconds)
        return name

    async def body(process: Any) -> None:
        loop = asyncio.get_running_loop()

        def ask(name: str, seconds: float) -> asyncio.Future[str]:
            return loop.run_in_executor(process.thread, work, process, name, seconds)

        first, second = ask("first", 2.0), ask("second", 1.0)
        assert process.thread.num_waiting == 2
        for asked in (first, second):
            heard.append((await asked, timeline.now))
        assert process.thread.is_idle

    Threaded(timeline, body).start()
    run(timeline)
    assert heard == [("first", 2.0), ("second", 3.0)]


def test_an_error_in_a_thread_reaches_who_waits(timeline: Timeline) -> None:
    def fail() -> None:
        raise ValueError("no")

    caught: list[str] = []

    async def body(process: Any) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(process.thread, fail)
        except ValueError as error:
            caught.append(str(error))

    Threaded(timeline, body).start()
    run(timeline)
    assert caught == ["no"]
