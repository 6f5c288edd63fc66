"""A cell in virtual time: what a pass, a draft step and the host take is known, the pool is real.

Replicas run their leases one after another, as long as the costs say; the host between them is one
thread. Token 1 is what every target chooses; a drafted token is 1, or 0 where it is wrong.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from unittest import mock

from specdec_core.config import SchedulerConfig, SpecMethod
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, ReplicaInfo, Role, RowResult
from specdec_core.request import Request, TokenEvent
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler, SendLease
from specdec_core.speculation.drafter import Offer, Row
from specdec_core.speculation.k_policy import KPolicy
from specdec_core.speculation.ngram import NgramDrafter
from specdec_core.speculation.registry import DRAFTERS
from specdec_core.step_times import StepTime

RIGHT, WRONG = 1, 0
_PROMPT_LEN = 4
_ANY = 4096
"""More positions than any answer here has."""


@dataclass(frozen=True)
class Costs:
    """Seconds."""

    verify_s: Callable[[int, int], float]
    """Of a target's pass, by its sequences and rows."""
    draft_s: Callable[[int], float] = lambda num_sequences: 0.0
    """Of one draft step, by its sequences."""
    host_s: Callable[[int], float] = lambda num_sequences: 0.0
    """Between a group's result and the next lease, by the group's sequences."""
    has_one_thread: bool = False
    """Draft and target take turns, as in the engine of one process."""
    noise: float = 0.0
    """By so much other work makes a pass longer, relatively and on average."""


@dataclass
class Outcome:
    seconds: float = 0.0
    num_tokens: int = 0
    num_groups: int = 0

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


@dataclass
class World:
    """A pool, its targets, and a draft where the method uses one. It lives through several runs."""

    config: SchedulerConfig
    costs: Costs
    acceptance: float | Sequence[float]
    """Of drafted tokens; several: request by request, in turn."""
    k_policy: KPolicy | None = None
    seed: int = 3
    num_targets: int = 1
    step_times: tuple[StepTime, ...] = ()
    """What targets say of their passes when they register."""
    now: float = 0.0
    _num_requests: int = 0
    _free_at: dict[str, float] = field(default_factory=dict)
    _coming: list[tuple[float, int, GroupLease, float]] = field(default_factory=list)
    _seconds: random.Random = field(default_factory=lambda: random.Random(5))

    def __post_init__(self) -> None:
        self.pool = Scheduler(self.config, epoch=1, k_policy=self.k_policy)
        device = "thread" if self.costs.has_one_thread else ""
        for number in range(self.num_targets):
            info = replace(_info(Role.TARGET, number, device), step_times=self.step_times)
            self.pool.register(info, self.now)
        if self.config.speculation.uses_draft_model:
            self.pool.register(_info(Role.DRAFT, 0, device), self.now)

    def run(self, num_live: int, max_tokens: int, num_requests: int | None = None) -> Outcome:
        """Decode `num_requests` requests [as many as may be live], `num_live` of them at a time."""
        left = (num_requests or num_live) - num_live
        outcome, began = Outcome(), self.now
        with _lookups_from(self):
            for _ in range(num_live):
                self._add(max_tokens)
            while self.pool.has_work:
                commands = self.pool.advance(self.now)
                assert commands or self._coming or self.pool.next_deadline(), "stuck"
                for command in commands:
                    if isinstance(command, SendLease):
                        self._start(command.lease)
                    elif isinstance(command, TokenEvent):
                        outcome.num_tokens += len(command.token_ids)
                        if command.finish_reason is not None and left:
                            left -= 1
                            self._add(max_tokens)
                outcome.num_groups += self._next_result()
        outcome.seconds = self.now - began
        return outcome

    def offers(self, number: int, first: int, count: int) -> tuple[int, ...]:
        """What is drafted for places `first` and on of a request: the same whoever asks."""
        rates = self.acceptance
        rate = rates if isinstance(rates, float) else rates[number % len(rates)]
        places = range(first, first + count)
        return tuple(RIGHT if _luck(self.seed, number, p) < rate else WRONG for p in places)

    def _add(self, max_tokens: int) -> None:
        number = self._num_requests
        self._num_requests += 1
        prompt = (number, *(RIGHT for _ in range(_PROMPT_LEN - 1)))
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        request = Request(request_id=str(number), prompt_token_ids=prompt, params=params)
        self.pool.add(request, self.now)

    def _start(self, lease: GroupLease) -> None:
        thread = "" if self.costs.has_one_thread else lease.replica_id
        seconds = self._pass_s(lease)
        ends = max(self.now, self._free_at.get(thread, 0.0)) + seconds
        self._free_at[thread] = ends
        heapq.heappush(self._coming, (ends, lease.lease_id, lease, seconds))

    def _pass_s(self, lease: GroupLease) -> float:
        size = len(lease.rows)
        if lease.role is Role.DRAFT:
            steps = max(row.num_choices for row in lease.rows)
            seconds = max(steps, 1) * self.costs.draft_s(size)
        else:
            num_rows = sum(len(row.new_ids) + len(row.proposal) for row in lease.rows)
            seconds = self.costs.verify_s(size, num_rows)
        disturbed = 1.0 + self.costs.noise * self._seconds.expovariate(1.0)
        return seconds * disturbed

    def _next_result(self) -> bool:
        """Say whether it was a target's, or pass over time in which nothing runs."""
        deadline = self.pool.next_deadline()
        if not self._coming or (deadline is not None and deadline < self._coming[0][0]):
            self.now = max(self.now, deadline or 0.0)
            return False
        ends, _, lease, seconds = heapq.heappop(self._coming)
        self.now = max(self.now, ends)
        answer = self._drafted if lease.role is Role.DRAFT else _verified
        result = GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple(answer(row) for row in lease.rows),
            seconds=seconds,
        )
        self.pool.on_result(result, self.now)
        self.now += self.costs.host_s(len(lease.rows))
        return lease.role is Role.TARGET

    def _drafted(self, row: LeaseRow) -> RowResult:
        number = row.sequence_id
        tokens = self.offers(number, row.end_len, row.num_choices)
        cached_len = row.end_len + max(row.num_choices - 1, 0)
        return RowResult(sequence_id=row.sequence_id, cached_len=cached_len, tokens=tokens)


@cache
def _luck(seed: int, number: int, place: int) -> float:
    return random.Random(f"{seed}/{number}/{place}").random()


@contextmanager
def _lookups_from(world: World) -> Iterator[None]:
    """Put the world's offers where prompt lookup stands. They are right with the same chance
    wherever they stand, so they have no kinds."""

    class WorldDrafter(NgramDrafter):
        def propose(self, rows: Sequence[Row], most: Sequence[int]) -> list[Offer]:
            return [
                Offer(world.offers(row.ids[0], len(row.ids), count))
                for row, count in zip(rows, most, strict=True)
            ]

    with mock.patch.dict(DRAFTERS, {SpecMethod.NGRAM: WorldDrafter}):
        yield


def _verified(row: LeaseRow) -> RowResult:
    num_accepted = 0
    while num_accepted < len(row.proposal) and row.proposal[num_accepted] == RIGHT:
        num_accepted += 1
    return RowResult(
        sequence_id=row.sequence_id,
        cached_len=row.end_len + num_accepted,
        tokens=(RIGHT,) * (num_accepted + 1) if row.num_choices else (),
        num_accepted=num_accepted,
    )


def _info(role: Role, number: int, device: str) -> ReplicaInfo:
    return ReplicaInfo(
        replica_id=f"{role.value}{number}",
        role=role,
        incarnation=1,
        num_blocks=1 << 20,
        kv_cache_spec=FullAttentionSpec(16),
        max_model_len=_ANY,
        vocab_size=1 << 20,
        model_digest="m",
        device=device,
    )
