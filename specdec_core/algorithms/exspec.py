"""EXSPEC: a sliding window of sequences, grouped by length, over the in-place cache.

This is the paper's Algorithm 2 (arXiv 2510.22876, section 4). It keeps a pool of sequences and
picks B of equal length from a window of W > B. It verifies them together and returns each to the
pool. A finished sequence leaves immediately, and the window refills. The paper's fallback,
unpad-append-repad, does not exist here. Every sequence owns a slot whose KV starts at position 0,
so rows of any lengths share a pass and nothing is ever realigned.

The scheduler is the one that the service runs (specdec_core.scheduler). Here direct calls carry out
its commands, with draft and target in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import OverlapMode, SchedulerConfig
from specdec_core.grammar import GrammarCompiler
from specdec_core.messages import GroupLease, Role
from specdec_core.model import CachedModel, replica_info
from specdec_core.request import Request, TokenEvent
from specdec_core.scheduler import Command, Scheduler, SendFree, SendLease
from specdec_core.worker.replica import Replica

_EPOCH = 1
_INCARNATION = 1
_DEVICE = "this process"
"""Device of both replicas, because draft and target take turns in one thread."""


class Exspec:
    """The scheduler with one target and at most one draft replica in this process."""

    def __init__(
        self,
        target: CachedModel,
        draft: CachedModel | None = None,
        *,
        config: SchedulerConfig,
        grammars: GrammarCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if config.overlap is OverlapMode.AUTO:  # in one thread draft and target take turns anyway
            config = replace(config, overlap=OverlapMode.NEVER)
        self._scheduler = Scheduler(config, epoch=_EPOCH)
        self._clock = clock
        self._grammars = grammars
        self._replicas: dict[str, Replica] = {}
        self._leases: list[GroupLease] = []
        self._seconds = {"draft": 0.0, "verify": 0.0, "align": 0.0, "schedule": 0.0}
        self._join(target, Role.TARGET)
        if draft is not None:
            self._join(draft, Role.DRAFT)

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or bool(self._leases)

    @property
    def stats(self) -> AlgorithmStats:
        counters = self._scheduler.counters()
        return AlgorithmStats(
            num_rounds=counters.num_groups,
            num_committed=counters.num_committed,
            num_drafted=counters.num_drafted,
            num_accepted=counters.num_accepted,
            num_sequence_rounds=counters.num_sequence_rounds,
            num_proposed_rounds=counters.num_proposed_rounds,
            accepted_per_position=counters.accepted_per_position,
            drafted_per_position=counters.drafted_per_position,
            num_groups=counters.num_groups,
            num_equal_length_groups=counters.num_equal_length_groups,
            seconds=dict(self._seconds),
        )

    def add(self, request: Request) -> None:
        self._scheduler.add(request, self._clock())

    def abort(self, request_id: str) -> bool:
        return self._scheduler.abort(request_id, self._clock())

    def step(self) -> list[TokenEvent]:
        """Run the groups that were formed, form the next ones, return the committed tokens."""
        leases, self._leases = self._leases, []
        for lease in leases:
            self._run(lease)
        started = time.perf_counter()
        commands = self._scheduler.advance(self._clock())
        self._seconds["schedule"] += time.perf_counter() - started
        return [event for command in commands if (event := self._carry_out(command)) is not None]

    def _carry_out(self, command: Command) -> TokenEvent | None:
        if isinstance(command, TokenEvent):
            return command
        if isinstance(command, SendLease):
            self._leases.append(command.lease)
        else:
            assert isinstance(command, SendFree), f"{command} is for a replica that can fail"
            self._replicas[command.replica_id].free(command.sequence_ids)
        return None

    def _run(self, lease: GroupLease) -> None:
        result = self._replicas[lease.replica_id].execute(lease)
        stage = "verify" if lease.role is Role.TARGET else "draft"
        self._seconds[stage] += result.seconds
        started = time.perf_counter()
        self._scheduler.on_result(result, self._clock())
        self._seconds["schedule"] += time.perf_counter() - started

    def _join(self, model: CachedModel, role: Role) -> None:
        self._replicas[role.value] = Replica(model, role, self._grammars)
        info = replica_info(model, role, role.value, _INCARNATION, device=_DEVICE)
        self._scheduler.register(info, self._clock())
