"""What the pool itself costs: the time of a decision, and sequence-rounds per second of one core.

Replicas answer at once, without a model: of every proposal a random part is accepted. A decision is
what one result leads to: it is merged, its tokens go out, the next group is formed, and the driver
asks when to come again. Garbage is collected as in the coordinator's process.

    python -m benchmarks.pool_rate --rounds 10000000 --output benchmarks/results/pool_rate.json
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness.commands import write_json
from deployments.runtime.garbage import look_seldom
from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, ReplicaInfo, Role, RowResult
from specdec_core.request import Request, TokenEvent
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Command, Scheduler, SendLease

_VOCAB = 1000
_COMMON = 50
"""The target says one of so many ids: prompt lookup finds something now and then."""
_PROMPT_LEN = 100
_MAX_LEN = 4096
_LONG = (_MAX_LEN - _PROMPT_LEN, _MAX_LEN - _PROMPT_LEN)
"""Tokens of an answer, at least and at most: none ends while decisions are timed."""
_SHORT = (16, 64)
"""Of the soak: sequences end all the time, and others take their places."""
_PATIENT_S = 100.0
"""Nothing is overdue: groups go by shape and likeness."""
_GPU_PREFILL_TOKENS = 8192
"""As the service has it."""
_NUM_CHECKS = 10
_TICK_S = 0.001


class Cell(NamedTuple):
    """What is measured."""

    sequences: int
    targets: int
    group_size: int
    max_group_wait_s: float = 0.1
    group_by_shape: bool = False
    max_prefill_tokens: int = 0
    """0: no limit, and no beginnings are remembered."""


class Decision(NamedTuple):
    """One result and what it led to."""

    num_rows: int
    wall_s: float
    cpu_s: float
    """Of this thread: without what other processes take of the core."""


@dataclass
class World:
    """A pool, and targets that answer in turn. Sequences that end are replaced at once."""

    cell: Cell
    answer_lens: tuple[int, int] = _LONG
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    now: float = 0.0
    num_added: int = 0
    leases: deque[GroupLease] = field(default_factory=deque)

    def __post_init__(self) -> None:
        window = -(-self.cell.sequences // self.cell.targets)
        speculation = SpeculationConfig(
            method=SpecMethod.NGRAM, num_draft_tokens=4, k_policy=KPolicyName.FIXED
        )
        config = SchedulerConfig(
            max_group_size=self.cell.group_size,
            window=window,
            max_queued=self.cell.sequences,
            max_prefill_tokens=self.cell.max_prefill_tokens or None,
            max_group_wait_s=self.cell.max_group_wait_s,
            grouping="equal_length" if self.cell.group_by_shape else "oldest_first",
            speculation=speculation,
        )
        self.pool = Scheduler(config, epoch=1)
        for index in range(self.cell.targets):
            self.pool.register(_target(index, num_blocks=window * _MAX_LEN // 16), self.now)
        for _ in range(self.cell.sequences):
            self._add()
        self._carry_out(self.pool.advance(self.now))

    def decide(self) -> Decision:
        """Let one target answer."""
        lease = self.leases.popleft()
        result = GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple(self._answer(row) for row in lease.rows),
            seconds=0.01,
        )
        self.now += _TICK_S
        wall, cpu = time.perf_counter(), time.thread_time()
        self.pool.on_result(result, self.now)
        commands = self.pool.advance(self.now)
        self.pool.next_deadline()
        decision = Decision(len(lease.rows), time.perf_counter() - wall, time.thread_time() - cpu)
        self._carry_out(commands)
        return decision

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, SendLease):
                self.leases.append(command.lease)
            elif isinstance(command, TokenEvent) and command.finish_reason is not None:
                self._add()

    def _add(self) -> None:
        prompt = tuple(self.rng.randrange(_COMMON) for _ in range(_PROMPT_LEN))
        params = SamplingParams(max_tokens=self.rng.randint(*self.answer_lens))
        request = Request(request_id=str(self.num_added), prompt_token_ids=prompt, params=params)
        self.num_added += 1
        self.pool.add(request, self.now)

    def _answer(self, row: LeaseRow) -> RowResult:
        cached_len = row.base_len + len(row.new_ids)
        if not row.num_choices:
            return RowResult(sequence_id=row.sequence_id, cached_len=cached_len)
        count = self.rng.randrange(row.num_choices)
        return RowResult(
            sequence_id=row.sequence_id,
            cached_len=cached_len + count,
            tokens=(*row.proposal[:count], self.rng.randrange(_COMMON)),
            num_accepted=count,
        )


def _target(index: int, num_blocks: int) -> ReplicaInfo:
    return ReplicaInfo(
        replica_id=f"t{index}",
        role=Role.TARGET,
        incarnation=1,
        num_blocks=num_blocks,
        kv_cache_spec=FullAttentionSpec(16),
        max_model_len=_MAX_LEN,
        vocab_size=_VOCAB,
        model_digest="none",
        keeps_prefixes=True,
    )


def measure(cell: Cell, num_rounds: int) -> dict[str, Any]:
    """Behind two rounds of every sequence, which are not counted."""
    world = World(cell)
    for _ in range(2 * cell.sequences // cell.group_size):
        world.decide()
    gc.collect()
    decisions = [world.decide() for _ in range(num_rounds // cell.group_size)]
    num_rows = sum(decision.num_rows for decision in decisions)
    wall = sorted(decision.wall_s for decision in decisions)
    cpu = sorted(decision.cpu_s for decision in decisions)
    return {
        **cell._asdict(),
        "decisions": len(decisions),
        "decision_p50_ms": wall[len(wall) // 2] * 1e3,
        "decision_p99_ms": wall[len(wall) * 99 // 100] * 1e3,
        "decision_cpu_p50_ms": cpu[len(cpu) // 2] * 1e3,
        "decision_cpu_p99_ms": cpu[len(cpu) * 99 // 100] * 1e3,
        "sequence_rounds_per_s": num_rows / sum(wall),
        "sequence_rounds_per_cpu_s": num_rows / sum(cpu),
    }


def soak(cell: Cell, num_rounds: int) -> list[dict[str, float]]:
    """Memory while sequences come and go, from the moment when all the first ones have gone."""
    world = World(cell, answer_lens=_SHORT)
    done = 0
    while world.num_added < 3 * cell.sequences:
        world.decide()
    checks = [_memory(world, done)]
    for check in range(1, _NUM_CHECKS + 1):
        while done < num_rounds * check // _NUM_CHECKS:
            done += world.decide().num_rows
        checks.append(_memory(world, done))
    return checks


def _memory(world: World, num_rounds: int) -> dict[str, float]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rounds": num_rounds,
        "sequences_added": world.num_added,
        "allocated_blocks": sys.getallocatedblocks(),
        "tracked_objects": len(gc.get_objects()),
        "resident_mib": pages * 4096 / 2**20,
    }


def main(
    sequences: Annotated[int, typer.Option(help="Live sequences.")] = 10_000,
    timed: Annotated[int, typer.Option(help="Sequence-rounds timed in every cell.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Sequence-rounds of the soak; 0: none.")] = 0,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Time decisions with few and with many live sequences; watch memory over many rounds."""
    look_seldom()
    cells = [
        Cell(64, 1, 64),
        Cell(sequences, 1, 8),
        Cell(sequences, 1, 64),
        Cell(sequences, 1, 64, max_prefill_tokens=_GPU_PREFILL_TOKENS),
        Cell(sequences, 8, 64),
        Cell(sequences, 32, 32),
        Cell(sequences, 32, 32, _PATIENT_S, group_by_shape=True),
        Cell(sequences, 64, 32),
    ]
    found: dict[str, Any] = {
        "cells": [measure(cell, timed) for cell in track(cells, description="cells")]
    }
    _show(found["cells"])
    if rounds:
        found["soak"] = soak(Cell(sequences, 1, 64), rounds)
        _show_soak(found["soak"])
    write_json(found, output)


def _show(cells: list[dict[str, Any]]) -> None:
    times = ("decision_p50_ms", "decision_p99_ms", "decision_cpu_p50_ms", "decision_cpu_p99_ms")
    rates = ("sequence_rounds_per_s", "sequence_rounds_per_cpu_s")
    table = Table("sequences", "targets", "group", "wait, s", "by shape", "p50, ms", "p99, ms")
    for name in ("CPU p50, ms", "CPU p99, ms", "rounds/s", "rounds/CPU s"):
        table.add_column(name)
    for cell in cells:
        table.add_row(
            *(f"{cell[name]:g}" for name in Cell._fields),
            *(f"{cell[name]:.2f}" for name in times),
            *(f"{cell[name]:.0f}" for name in rates),
        )
    Console().print(table)


def _show_soak(checks: list[dict[str, float]]) -> None:
    table = Table(*checks[0])
    for check in checks:
        table.add_row(*(f"{value:.0f}" for value in check.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
