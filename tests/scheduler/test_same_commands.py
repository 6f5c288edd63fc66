"""The same events give the same commands as when they were recorded, to the last one.

Speed is sought in the pool's insides; what it decides must not change by that. A change of
behaviour that is wanted records the digests anew: `python -m tests.scheduler.test_same_commands`.
"""

from __future__ import annotations

import hashlib
import json
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.pool_rate import Cell as BenchCell
from benchmarks.pool_rate import World
from specdec_core.config import (
    KPolicyName,
    OverlapMode,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.errors import QueueFullError
from specdec_core.messages import GroupLease, Role
from specdec_core.request import TokenEvent
from specdec_core.scheduler import Command, Drained, SendFree, SendLease, SendReset
from tests.scheduler.cell import Cell, request
from tests.scheduler.fake_replica import FakeReplica, info

_NUM_STEPS = 1500
_TTL_S = 5.0


class Digest:
    """Of all that a pool has said."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def note(self, said: list[Command], deadline: float | None) -> None:
        told = [[_plain(command) for command in said], deadline]
        self._sha.update(json.dumps(told).encode())

    @property
    def short(self) -> str:
        return self._sha.hexdigest()[:16]


def _plain(command: Command) -> list[Any]:
    match command:
        case SendLease():
            return ["lease", *_lease(command.lease)]
        case SendFree():
            return ["free", command.replica_id, command.sequence_ids]
        case SendReset():
            return ["reset", command.replica_id, command.incarnation]
        case Drained():
            return ["drained", command.replica_id]
        case TokenEvent():
            return ["emit", *_event(command)]


def _lease(lease: GroupLease) -> list[Any]:
    rows = [(*row[:7], row.rules is None) for row in lease.rows]
    return [lease.lease_id, lease.replica_id, lease.role.value, lease.ttl_s, rows]


def _event(event: TokenEvent) -> list[Any]:
    stats = event.stats
    told = None if stats is None else [stats.num_rounds, stats.steps, stats.queue_s]
    return [*event[:3], event.finish_reason, told, event.error, event.prompt_logprobs]


class RecordedCell(Cell):
    """Notes what its pool says."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self.digest = Digest()

    def advance(self) -> list[Command]:
        commands = super().advance()
        self.digest.note(commands, self.pool.next_deadline())
        return commands


class Life:
    """Clients and replicas come and go at random; messages are lost with whoever had them."""

    def __init__(self, method: SpecMethod, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cell = RecordedCell(self._config(method))
        self.num_added = 0
        self.incarnation = 0
        for role in (Role.TARGET, Role.TARGET, Role.DRAFT):
            self.join(role)

    def _config(self, method: SpecMethod) -> SchedulerConfig:
        rng = self.rng
        is_scheduled = rng.random() < 0.5
        speculation = SpeculationConfig(
            method=method,
            k_policy=KPolicyName.SCHEDULE if is_scheduled else KPolicyName.FIXED,
            k_schedule=((1, 3, 4), (4, 6, 2)) if is_scheduled else (),
        )
        return SchedulerConfig(
            speculation=speculation,
            max_group_size=rng.randint(2, 4),
            window=rng.randint(6, 12),
            prefill_chunk=rng.randint(3, 12),
            max_group_wait_s=rng.choice([0.05, 0.3]),
            verification_budget=rng.choice([None, 6]),
            lease_ttl_s=_TTL_S,
            max_queued=20,
            overlap=OverlapMode.NEVER,  # the digests are older
            grouping="equal_length",
        )

    def live(self) -> str:
        """All of it; the digest of what was said."""
        common = (self.add, self.add, self.turn, self.turn, self.turn, self.handle, self.deliver)
        rare = (self.abort, self.resubmit, self.come, self.die, self.drain, self.lose, self.wait)
        for _ in range(_NUM_STEPS):
            event = self.rng.choice(common if self.rng.random() < 0.9 else rare)
            event()
        return self.cell.digest.short

    def add(self) -> None:
        self.num_added += 1
        rng = self.rng
        fresh = request(
            f"r{self.num_added}",
            tuple(rng.randrange(5) for _ in range(rng.randint(1, 18))),
            rng.randint(1, 12),
            seed=rng.randrange(4),
            stop_token_ids=rng.choice([(), (), (0,)]),
            num_draft_tokens=rng.choice([None, None, 0, 2]),
            priority=rng.choice([0, 0, 0, 1]),
        )
        asked = rng.choice([None, None, None, 1])
        params = replace(fresh.params, num_prompt_logprobs=asked)
        is_background = rng.random() < 0.2
        with suppress(QueueFullError):
            self.cell.add(replace(fresh, params=params, is_background=is_background))

    def abort(self) -> None:
        if self.cell.clients:
            self.cell.pool.abort(self.rng.choice(list(self.cell.clients)), self.cell.now)

    def resubmit(self) -> None:
        going = [client for client in self.cell.clients.values() if client.last is None]
        if going:
            client = self.rng.choice(going)
            self.cell.add(replace(client.request, emitted_token_ids=tuple(client.token_ids)))

    def come(self) -> None:
        if len(self.cell.links) < 6:
            self.join(self.rng.choice([Role.TARGET, Role.TARGET, Role.DRAFT]))

    def join(self, role: Role) -> None:
        self.incarnation += 1
        limits = info(
            f"{role}{self.incarnation}",
            role,
            incarnation=self.incarnation,
            num_blocks=self.rng.randint(16, 40),
            block_size=3,
            max_model_len=30,
        )
        self.cell.join(limits, agreement=self.rng.choice([0, 60, 90]))

    def die(self) -> None:
        if len(self.cell.links) > 2:
            self.cell.die(self._replica().info.replica_id)

    def drain(self) -> None:
        if len(self.cell.links) > 3:
            self.cell.pool.drain(self._replica().info.replica_id, self.cell.now)

    def lose(self) -> None:
        """A slot forgets some of its end, or all of it."""
        slots = self._replica().slots
        if slots:
            sequence_id = self.rng.choice(sorted(slots))
            del slots[sequence_id].ids[self.rng.randrange(5) :]
            if not slots[sequence_id].ids:
                del slots[sequence_id]

    def wait(self) -> None:
        self.cell.now += self.rng.choice([0.05, 0.3, _TTL_S])
        self.cell.advance()

    def turn(self) -> None:
        self.cell.now += 0.01
        self.cell.turn()

    def handle(self) -> None:
        self.cell.now += 0.01
        self.cell.advance()
        replica_id = self._replica().info.replica_id
        if self.cell.links[replica_id].inbox:
            self.cell.handle(replica_id)

    def deliver(self) -> None:
        replica_id = self._replica().info.replica_id
        if self.cell.links[replica_id].results:
            self.cell.deliver(replica_id)
        self.cell.advance()

    def _replica(self) -> FakeReplica:
        return self.rng.choice([link.replica for link in self.cell.links.values()])


def bench(cell: BenchCell) -> str:
    """What the benchmark's world is told, sequences coming and going."""
    world, digest = World(cell, answer_lens=(40, 200)), Digest()
    for _ in range(400):
        world.decide()
        digest.note([SendLease(world.leases[-1])], world.pool.next_deadline())
    return digest.short


_LIVES = {
    (SpecMethod.NONE, 1): "f17e3798cf649e6c",
    (SpecMethod.NGRAM, 2): "f424e18e68845635",
    (SpecMethod.DRAFT_MODEL, 3): "96146ab9f4b63255",
    (SpecMethod.DRAFT_MODEL, 4): "3c992547cc46016e",
    (SpecMethod.HYBRID, 5): "a33ee5f4e28e511f",
    (SpecMethod.HYBRID, 6): "5e1eb305a64c2c15",
}
_DAILY_LIVES = ((SpecMethod.NGRAM, 2), (SpecMethod.HYBRID, 6))
"""They have requests without drafts, and drafts of both kinds."""
_WORLDS = {
    BenchCell(200, 1, 16, group_by_shape=True): "9fb4fb5e22100f22",
    BenchCell(200, 3, 8, group_by_shape=True): "7c9eb51446c9be2a",
    BenchCell(200, 3, 8, 100.0, group_by_shape=True): "a826a199bbab899a",
    BenchCell(200, 3, 8): "7da1d54630583d32",
}


@pytest.mark.parametrize(
    ("method", "seed"),
    [
        pytest.param(*life, marks=() if life in _DAILY_LIVES else pytest.mark.nightly)
        for life in _LIVES
    ],
)
def test_a_random_life_is_told_what_it_was_told(method: SpecMethod, seed: int) -> None:
    assert Life(method, seed).live() == _LIVES[method, seed]


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=() if cell.targets > 1 else pytest.mark.nightly) for cell in _WORLDS],
)
def test_a_benchmark_is_told_what_it_was_told(cell: BenchCell) -> None:
    assert bench(cell) == _WORLDS[cell]


if __name__ == "__main__":
    print({life: Life(*life).live() for life in _LIVES} | {cell: bench(cell) for cell in _WORLDS})
