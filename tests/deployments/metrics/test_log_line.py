"""The lines that users search for: their words, and the figures of what came in between."""

from __future__ import annotations

from deployments.observability.metrics.log_line import log_lines
from deployments.observability.metrics.rates import between, of_cells
from specdec.v1 import generation_pb2 as pb
from tests.deployments.metrics.status import full_status


def lines(before: pb.PoolStatusResponse, now: pb.PoolStatusResponse, cell: int = 0) -> list[str]:
    """Of ten seconds."""
    return list(log_lines(between(of_cells(before, 5.0), of_cells(now, 15.0)), now, cell))


def test_the_lines_are_worded_as_vllm_does_and_tell_what_came_in_between() -> None:
    before, now = full_status(), full_status()
    for name, more in (
        ("num_prompt_tokens", 50),
        ("num_committed", 100),
        ("num_drafted", 80),
        ("num_accepted", 60),
        ("num_proposed_rounds", 20),
    ):
        now.counters[name] += more
    for position, more in enumerate((20, 20, 15, 5)):
        if position == 3:
            now.accepted_per_position.append(more)
        else:
            now.accepted_per_position[position] += more
    assert lines(before, now, 1) == [
        "Cell 1: Avg prompt throughput: 5.0 tokens/s, Avg generation throughput: 10.0 tokens/s, "
        "Running: 5 reqs, Waiting: 3 reqs, KV cache usage: 25.0%, Prefix cache hit rate: 20.0%",
        "SpecDecoding metrics: Mean acceptance length: 4.00, Accepted throughput: 6.00 tokens/s, "
        "Drafted throughput: 8.00 tokens/s, Accepted: 60 tokens, Drafted: 80 tokens, "
        "Per-position acceptance rate: 1.000, 1.000, 0.750, 0.250, "
        "Avg Draft acceptance rate: 75.0%",
    ]


def test_where_nothing_was_done_nothing_is_said() -> None:
    idle = full_status()
    idle.num_running = idle.num_waiting = 0
    assert lines(idle, idle) == []
    assert lines(pb.PoolStatusResponse(), pb.PoolStatusResponse()) == []


def test_without_drafts_there_is_no_line_of_them() -> None:
    status = full_status()
    (line,) = lines(status, status)
    assert "Running: 5 reqs" in line


def test_after_a_restart_the_figures_are_those_of_the_new_life() -> None:
    before, now = full_status(), full_status()
    before.epoch, now.epoch = 1, 2
    for name in now.counters:
        before.counters[name] *= 2
    (first, _) = lines(before, now)
    assert "Avg prompt throughput: 70.0 tokens/s, Avg generation throughput: 40.0" in first
