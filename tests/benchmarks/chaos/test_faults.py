"""Who is struck when: every fault in turn, on processes of the test's own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice

import psutil
import pytest

from benchmarks.chaos.asked import Way, mixed
from benchmarks.chaos.faults import CYCLE, Blow, Fault, Striker, parse_cycle
from benchmarks.chaos.load import until
from benchmarks.chaos.run import Plan
from benchmarks.harness.processes import Kind, Pids
from deployments.cli.generate.prompt_file import PromptLine


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def striker(pids: Pids, *cycle: Fault) -> Striker:
    return Striker(lambda: pids, every_s=0.02, stop_s=0.2, cycle=cycle)


def test_every_fault_strikes_and_who_is_missing_has_its_turn_later(
    sleeper: subprocess.Popen[bytes],
) -> None:
    pids: Pids = {kind: () for kind in Kind} | {Kind.DRAFT: (sleeper.pid,)}
    stop, kill = Fault(Kind.DRAFT, Blow.STOP), Fault(Kind.DRAFT, Blow.KILL)

    async def scenario() -> list[Fault]:
        chaos = striker(pids, Fault(Kind.TARGET, Blow.KILL), stop, kill)
        task = asyncio.create_task(chaos.run())
        async with asyncio.timeout(20):
            while len(chaos.strikes) < 2:
                await asyncio.sleep(0.01)
        assert not chaos.is_cycle_complete
        task.cancel()
        return [strike.fault for strike in chaos.strikes[:2]]

    assert asyncio.run(scenario()) == [stop, kill]
    assert sleeper.wait(timeout=20) == -9


def test_without_repeats_every_fault_strikes_once(sleeper: subprocess.Popen[bytes]) -> None:
    """One that is missing at its turn is waited for, and the others do not strike again."""
    stop, kill = Fault(Kind.DRAFT, Blow.STOP), Fault(Kind.DRAFT, Blow.KILL)
    late = Fault(Kind.TARGET, Blow.STOP)
    looks = iter(range(100))

    def find() -> Pids:
        pids = {kind: () for kind in Kind} | {Kind.DRAFT: (sleeper.pid,)}
        return pids | {Kind.TARGET: (sleeper.pid,) if next(looks) > 2 else ()}

    chaos = Striker(find, every_s=0.02, stop_s=0.02, cycle=[late, stop, kill], repeats=False)
    asyncio.run(asyncio.wait_for(chaos.run(), 20))
    assert [strike.fault for strike in chaos.strikes] == [stop, kill, late]
    assert chaos.is_cycle_complete


def test_nobody_stays_stopped_when_the_harness_ends(sleeper: subprocess.Popen[bytes]) -> None:
    pids: Pids = {kind: () for kind in Kind} | {Kind.DRAFT: (sleeper.pid,)}
    process = psutil.Process(sleeper.pid)

    async def scenario() -> None:
        chaos = Striker(lambda: pids, every_s=0.01, stop_s=60, cycle=[Fault(Kind.DRAFT, Blow.STOP)])
        task = asyncio.create_task(chaos.run())
        async with asyncio.timeout(20):
            while process.status() != psutil.STATUS_STOPPED:
                await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(scenario())
    assert process.status() != psutil.STATUS_STOPPED


def test_a_cycle_is_named_by_its_faults() -> None:
    assert parse_cycle("") == CYCLE
    assert len(CYCLE) == len(set(CYCLE)) == len(Kind) * len(Blow)
    assert parse_cycle("stop draft, kill proxy") == (
        Fault(Kind.DRAFT, Blow.STOP),
        Fault(Kind.PROXY, Blow.KILL),
    )
    with pytest.raises(ValueError, match="'burn proxy' is none of kill draft"):
        parse_cycle("burn proxy")


@pytest.mark.parametrize(
    ("longest_s", "given_s", "pace_s"),
    [(8.0, None, 5.0), (40.0, None, 10.0), (40.0, 2.0, 2.0), (8.0, 9.0, 9.0)],
)
def test_a_slow_machine_has_longer_between_faults_unless_it_is_told_how_long(
    longest_s: float, given_s: float | None, pace_s: float
) -> None:
    asked = mixed([PromptLine(line_number=1, prompt="Hello")], 2, max_tokens=8)
    plan = Plan(asked=asked, concurrency=16, every_s=given_s, stop_s=1.0)
    assert plan.pace_s(longest_s) == pytest.approx(pace_s)


def test_the_load_mixes_every_way_with_every_sampling() -> None:
    line = PromptLine(line_number=1, prompt="Hello")
    asked = mixed([line], 24, max_tokens=5)
    greedy = {one.way for one in asked if one.sampling["temperature"] == 0}
    sampled = {one.way for one in asked if one.sampling["temperature"] > 0}
    assert greedy == sampled == set(Way)
    assert len({str(one.body()) for one in asked}) == 24


def test_the_load_goes_on_until_every_fault_has_struck() -> None:
    asked = mixed([PromptLine(line_number=1, prompt="Hello")], 3, max_tokens=5)
    assert [one.number for one in until(asked, lambda: True)] == [0, 1, 2]
    endless = until(asked, lambda: False)
    assert [one.number for one in islice(endless, 7)] == [0, 1, 2, 0, 1, 2, 0]
