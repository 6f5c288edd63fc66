"""A service of its own while every kind of process is killed and stopped once: no byte differs."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.chaos.asked import mixed
from benchmarks.chaos.faults import CYCLE
from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.processes import ServiceProcesses
from benchmarks.chaos.run import Plan, disturb
from benchmarks.served import service
from deployments.prompt_file import read_prompt_file
from tests.service.own_service import PROMPTS, own_config

pytestmark = pytest.mark.slow


@pytest.mark.timeout(480)
def test_whoever_dies_or_hangs_every_answer_is_that_of_the_undisturbed_run(tmp_path: Path) -> None:
    settings = own_config(tmp_path)
    plan = Plan(
        asked=mixed(read_prompt_file(PROMPTS), 24, max_tokens=96),
        concurrency=8,
        every_s=3.0,
        stop_s=1.0,
        repeats=False,
    )
    with service(settings) as process:
        processes = ServiceProcesses(process.pid)
        run = asyncio.run(disturb(settings, plan, processes))
        alive = processes.all()
    result = run.result({}, left_of(alive))
    comparison = result.comparison
    assert comparison.num_answers >= 24
    assert (comparison.differing, comparison.changed) == ((), ())
    assert [one for one in comparison.failed if not one.is_allowed] == []
    assert Counter(recovery.strike.fault for recovery in result.recoveries) == Counter(CYCLE)
    assert result.is_whole
    assert result.held == {}
    assert result.left == []
