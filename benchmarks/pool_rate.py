"""What the pool itself costs: the time of a decision, and sequence-rounds per second of one core.

Replicas answer at once, without a model: of every proposal a random part is accepted. A decision is
what one result leads to: it is merged, its tokens go out, the next group is formed.

    python -m benchmarks.pool_rate --sequences 10000 --output benchmarks/results/pool_rate.json
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from specdec_core.config import PoolConfig, SpecMethod, SpeculationConfig
from specdec_core.leases import GroupLease, GroupResult, LeaseRow, ReplicaInfo, Role, RowResult
from specdec_core.pool import Command, SendLease, SequencePool
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams

_VOCAB = 1000
_COMMON = 50
"""The target says one of so many ids: prompt lookup finds something almost always."""
_PROMPT_LEN = 100
_MAX_LEN = 4096
_CELLS = ((1, 64), (8, 64), (32, 32))
"""(targets, rows of a group)"""


@dataclass
class World:
    """A pool, and targets that answer in turn."""

    num_sequences: int
    num_targets: int
    group_size: int
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    now: float = 0.0
    leases: deque[GroupLease] = field(default_factory=deque)

    def __post_init__(self) -> None:
        window = -(-self.num_sequences // self.num_targets)
        speculation = SpeculationConfig(method=SpecMethod.NGRAM, num_draft_tokens=4)
        config = PoolConfig(
            max_group_size=self.group_size,
            window=window,
            max_queued=self.num_sequences,
            speculation=speculation,
        )
        self.pool = SequencePool(config, epoch=1)
        for index in range(self.num_targets):
            self.pool.register(_target(index, num_blocks=window * _MAX_LEN // 16), self.now)
        for index in range(self.num_sequences):
            self.pool.add(self._request(index), self.now)
        self.send(self.pool.advance(self.now))

    def _request(self, index: int) -> Request:
        prompt = tuple(self.rng.randrange(_COMMON) for _ in range(_PROMPT_LEN))
        params = SamplingParams(max_tokens=_MAX_LEN - _PROMPT_LEN)
        return Request(request_id=str(index), prompt_token_ids=prompt, params=params)

    def send(self, commands: list[Command]) -> None:
        self.leases += (c.lease for c in commands if isinstance(c, SendLease))

    def decide(self) -> tuple[int, float]:
        """Let one target answer; its rows, and the seconds that the pool took."""
        lease = self.leases.popleft()
        result = GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple(self._answer(row) for row in lease.rows),
            seconds=0.01,
        )
        self.now += 0.001
        started = time.perf_counter()
        self.pool.on_result(result, self.now)
        commands = self.pool.advance(self.now)
        seconds = time.perf_counter() - started
        self.send(commands)
        return len(lease.rows), seconds

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
        block_size=16,
        max_model_len=_MAX_LEN,
        vocab_size=_VOCAB,
        model_digest="none",
    )


def measure(
    num_sequences: int, num_targets: int, group_size: int, num_decisions: int
) -> dict[str, Any]:
    """Behind a first round of every sequence, which is not counted."""
    world = World(num_sequences, num_targets, group_size)
    for _ in range(2 * num_sequences // group_size):
        world.decide()
    gc.collect()
    decisions = [world.decide() for _ in range(num_decisions)]
    seconds = sorted(took for _, took in decisions)
    num_rows = sum(rows for rows, _ in decisions)
    return {
        "sequences": num_sequences,
        "targets": num_targets,
        "group_size": group_size,
        "decision_p50_ms": seconds[len(seconds) // 2] * 1e3,
        "decision_p99_ms": seconds[len(seconds) * 99 // 100] * 1e3,
        "sequence_rounds_per_s": num_rows / sum(seconds),
    }


def main(
    sequences: Annotated[int, typer.Option(help="Live sequences.")] = 10_000,
    decisions: Annotated[int, typer.Option(help="Timed decisions of every cell.")] = 1000,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Time decisions with few and with many live sequences."""
    cells = [(64, 1, 64), *((sequences, targets, size) for targets, size in _CELLS)]
    found = [measure(*cell, decisions) for cell in track(cells, description="cells")]
    table = Table("sequences", "targets", "group", "p50, ms", "p99, ms", "sequence-rounds/s")
    for cell in found:
        times = (f"{cell['decision_p50_ms']:.2f}", f"{cell['decision_p99_ms']:.2f}")
        sizes = (cell["sequences"], cell["targets"], cell["group_size"])
        table.add_row(*map(str, sizes), *times, f"{cell['sequence_rounds_per_s']:.0f}")
    Console().print(table)
    if output is not None:
        output.write_text(json.dumps({"cells": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
