"""A cell on a table: the pool, fake replicas behind ordered streams, and clients that keep books.

Nothing moves by itself: tests say which replica handles its next message, which result arrives,
and how far the clock goes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import GroupLease, GroupResult, ReplicaInfo, RowResult, RowStatus
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import (
    Command,
    Drained,
    KPolicy,
    Scheduler,
    SendFree,
    SendLease,
    SendReset,
)
from tests.scheduler.fake_replica import FakeReplica, plain_ids, plain_scores

EPOCH = 77


def config(
    method: SpecMethod = SpecMethod.NONE, num_draft_tokens: int = 3, **limits: Any
) -> SchedulerConfig:
    speculation = SpeculationConfig(
        method=method, num_draft_tokens=num_draft_tokens, k_policy=KPolicyName.FIXED
    )
    return SchedulerConfig(speculation=speculation, **limits)


def request(
    request_id: str = "a",
    prompt: tuple[int, ...] = (1, 2, 3),
    max_tokens: int = 8,
    *,
    seed: int = 0,
    stop_token_ids: tuple[int, ...] = (),
    emitted: tuple[int, ...] = (),
    resume: tuple[int, ...] = (),
    speculation_enabled: bool = True,
    num_draft_tokens: int | None = None,
    priority: int = 0,
) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt,
        params=SamplingParams(max_tokens=max_tokens, seed=seed, stop_token_ids=stop_token_ids),
        emitted_token_ids=emitted,
        resume_token_ids=resume,
        speculation_enabled=speculation_enabled,
        num_draft_tokens=num_draft_tokens,
        priority=priority,
    )


@dataclass
class Client:
    """What one attempt of a request was told."""

    request: Request
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    last: TokenEvent | None = None

    def hear(self, event: TokenEvent) -> None:
        assert self.last is None, f"{self.request.request_id} hears more after its last event"
        assert event.index == len(self.token_ids), "a gap or an overlap"
        is_first = bool(event.token_ids) and not self.told
        assert event.prompt_logprobs == (plain_scores(self.request) if is_first else ())
        self.prompt_logprobs += event.prompt_logprobs
        self.token_ids += event.token_ids
        self.logprobs += event.logprobs
        if event.finish_reason is not None:
            assert event.stats is not None
            self.last = event
        else:
            assert event.token_ids, "an event that says nothing"

    @property
    def told(self) -> list[int]:
        """What this attempt has emitted itself."""
        return self.token_ids[len(self.request.emitted_token_ids) :]

    @property
    def reason(self) -> FinishReason | None:
        return None if self.last is None else self.last.finish_reason

    @property
    def plain(self) -> tuple[int, ...]:
        return plain_ids(self.request)[0]

    def check_plain(self) -> None:
        """The tokens are those of plain decoding: all of them, or a prefix if it was cut short."""
        expected, reason = plain_ids(self.request)
        assert tuple(self.token_ids) == expected[: len(self.token_ids)]
        if self.reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert tuple(self.token_ids) == expected
            assert self.reason is reason


@dataclass
class Link:
    """One replica's stream: messages to it and results from it, each in order."""

    replica: FakeReplica
    inbox: deque[SendLease | SendFree | SendReset] = field(default_factory=deque)
    results: deque[GroupResult | SendReset] = field(default_factory=deque)


class Cell:
    """Drives one pool by hand."""

    def __init__(self, config: SchedulerConfig, k_policy: KPolicy | None = None) -> None:
        self.pool = Scheduler(config, epoch=EPOCH, k_policy=k_policy)
        self.now = 0.0
        self.links: dict[str, Link] = {}
        self.clients: dict[str, Client] = {}
        self.leases: list[GroupLease] = []
        self.drained: list[str] = []
        self.delivered: list[GroupResult] = []

    def join(self, info: ReplicaInfo, agreement: int = 60) -> FakeReplica:
        self.pool.register(info, self.now)
        replica = FakeReplica(info, agreement)
        self.links[info.replica_id] = Link(replica)
        return replica

    def die(self, replica_id: str) -> None:
        del self.links[replica_id]
        self.pool.deregister(replica_id, self.now)

    def add(self, request: Request) -> Client:
        self.pool.add(request, self.now)
        client = Client(request, list(request.emitted_token_ids))
        self.clients[request.request_id] = client
        return client

    def advance(self) -> list[Command]:
        commands = self.pool.advance(self.now)
        for command in commands:
            self._carry_out(command)
        return commands

    def handle(self, replica_id: str) -> None:
        """The replica handles its next message."""
        link = self.links[replica_id]
        message = link.inbox.popleft()
        if isinstance(message, SendLease):
            link.results.append(link.replica.execute(message.lease))
        elif isinstance(message, SendFree):
            link.replica.free(message.sequence_ids)
        else:
            link.replica.reset()
            link.results.append(message)

    def deliver(self, replica_id: str) -> None:
        """The replica's next answer reaches the pool."""
        answer = self.links[replica_id].results.popleft()
        if isinstance(answer, SendReset):
            self.pool.on_reset_done(answer.replica_id, answer.incarnation, self.now)
        else:
            self.pool.on_result(answer, self.now)
            self.delivered.append(answer)

    def answer_with(self, replica_id: str, status: RowStatus, cached_len: int = 0) -> None:
        """Deliver the replica's next result with this status in place of every row's answer."""
        result = self.links[replica_id].results.popleft()
        assert isinstance(result, GroupResult)
        rows = tuple(
            RowResult(sequence_id=row.sequence_id, status=status, cached_len=cached_len)
            for row in result.rows
        )
        self.pool.on_result(result._replace(rows=rows), self.now)

    def turn(self) -> bool:
        """Advance, then let every replica handle and answer all it was sent; False if idle."""
        has_commands = bool(self.advance())
        return any([self._serve(replica_id) for replica_id in self.links]) or has_commands

    def run(self, max_turns: int = 2000) -> None:
        """Turn until nothing happens; time passes only when nothing else can."""
        for _ in range(max_turns):
            if not self.turn() and not self._skip_time():
                assert not self.pool.has_work, f"stuck: {self.pool.counters()}"
                return
        raise AssertionError(f"not done after {max_turns} turns: {self.pool.counters()}")

    def _serve(self, replica_id: str) -> bool:
        link = self.links[replica_id]
        is_busy = bool(link.inbox or link.results)
        while link.inbox:
            self.handle(replica_id)
        while link.results:
            self.deliver(replica_id)
        return is_busy

    def _skip_time(self) -> bool:
        deadline = self.pool.next_deadline()
        if deadline is None or deadline <= self.now:
            return False
        self.now = deadline
        return True

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, TokenEvent):
            client = self.clients.get(command.request_id)
            assert client is not None
            client.hear(command)
        elif isinstance(command, Drained):
            self.drained.append(command.replica_id)
        else:
            if isinstance(command, SendLease):
                self.leases.append(command.lease)
                replica_id = command.lease.replica_id
            else:
                replica_id = command.replica_id
            if replica_id in self.links:
                self.links[replica_id].inbox.append(command)
