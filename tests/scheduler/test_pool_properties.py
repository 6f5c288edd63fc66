"""Whatever happens to replicas, messages and clients, every request ends with its plain ids."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from specdec_core.config import OverlapMode, SchedulerConfig, SpecMethod
from specdec_core.errors import QueueFullError
from specdec_core.messages import Role
from specdec_core.request import FinishReason
from specdec_core.scheduler import SendFree
from specdec_core.scheduler.grouping import GROUPING_POLICIES
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, Client, config, request
from tests.scheduler.fake_replica import VOCAB_SIZE, FakeReplica, info

TTL_S = 5.0
NUM_BLOCKS = 14
BLOCK_SIZE = 3
LONGEST = 30

configs = st.builds(
    config,
    method=st.sampled_from(SpecMethod),
    num_draft_tokens=st.integers(0, 5),
    max_group_size=st.integers(1, 4),
    window=st.integers(4, 8),
    prefill_chunk=st.integers(1, 9),
    max_prefill_tokens=st.sampled_from([None, 1, 6, 20]),
    max_group_wait_s=st.sampled_from([0.0, 0.1, 1.0]),
    overlap=st.sampled_from(OverlapMode),
    grouping=st.sampled_from(list(GROUPING_POLICIES)),
    lease_ttl_s=st.just(TTL_S),
    max_queued=st.integers(3, 40),
)
prompts = st.lists(st.integers(0, 4), min_size=1, max_size=18).map(tuple)
picks = st.integers(0, 100)


class PoolMachine(RuleBasedStateMachine):
    """Random events in random order; a bounded epilogue in which the world behaves."""

    @initialize(config=configs)
    def begin(self, config: SchedulerConfig) -> None:
        self.cell = Cell(config)
        self.ended: list[Client] = []
        self.superseded: list[Client] = []
        self.num_added = 0
        self.incarnation = 0

    # Clients

    @rule(
        prompt=prompts,
        max_tokens=st.integers(1, 12),
        seed=st.integers(0, 3),
        stops=st.sampled_from([(), (0,), (1, 2)]),
        is_speculative=st.booleans(),
        k=st.sampled_from([None, 0, 2, 9]),
        priority=st.integers(-1, 1),
        num_emitted=st.integers(0, 4),
        num_resumed=st.sampled_from([0, 0, 1, 3, 12]),
        is_wrong=st.sampled_from([False, False, True]),
        is_background=st.sampled_from([False, False, True]),
        num_prompt_logprobs=st.sampled_from([None, None, 0, 2]),
        client=st.sampled_from(["", "one", "another"]),
    )
    def add(
        self,
        prompt: tuple[int, ...],
        max_tokens: int,
        seed: int,
        stops: tuple[int, ...],
        is_speculative: bool,
        k: int | None,
        priority: int,
        num_emitted: int,
        num_resumed: int,
        is_wrong: bool,
        is_background: bool,
        num_prompt_logprobs: int | None,
        client: str,
    ) -> None:
        self.num_added += 1
        fresh = request(
            f"r{self.num_added}",
            prompt,
            max_tokens,
            seed=seed,
            stop_token_ids=stops,
            speculation_enabled=is_speculative,
            num_draft_tokens=k,
            priority=priority,
        )
        params = replace(fresh.params, num_prompt_logprobs=num_prompt_logprobs)
        fresh = replace(fresh, params=params, is_background=is_background, client=client)
        plain = Client(fresh).plain
        emitted, resumed = plain[:num_emitted], plain[:num_resumed]
        if is_wrong and len(resumed) > len(emitted):
            resumed = (*resumed[:-1], (resumed[-1] + 1) % VOCAB_SIZE)
        again = replace(fresh, emitted_token_ids=emitted, resume_token_ids=resumed)
        with nullcontext() if emitted else suppress(QueueFullError):
            self.cell.add(again)

    @precondition(lambda self: self.cell.clients)
    @rule(pick=picks)
    def abort(self, pick: int) -> None:
        client = self._client(pick)
        is_live = client.last is None
        status = self.cell.pool.status(client.request.request_id)
        assert self.cell.pool.abort(client.request.request_id, self.cell.now) is (
            status is not None
        )
        if is_live and status is not None:
            self.cell.advance()
            assert client.reason is FinishReason.ABORT

    @precondition(lambda self: self.cell.clients)
    @rule(pick=picks)
    def resubmit(self, pick: int) -> None:
        """The client has heard a prefix and asks again: the older attempt hears no more."""
        client = self._client(pick)
        if client.last is None:
            self.superseded.append(client)
            again = replace(client.request, emitted_token_ids=tuple(client.token_ids))
            self.cell.add(again)

    # Replicas

    @precondition(lambda self: len(self.cell.links) < 5)
    @rule(role=st.sampled_from(Role), agreement=st.sampled_from([0, 60, 100]))
    def join(self, role: Role, agreement: int) -> None:
        self.incarnation += 1
        self._join(f"{role}{self.incarnation}", role, agreement)

    @precondition(lambda self: self.cell.links)
    @rule(pick=picks)
    def restart(self, pick: int) -> None:
        """A new process registers before anybody has noticed that the old one is gone."""
        self.incarnation += 1
        replica = self._replica(pick)
        self._join(replica.info.replica_id, replica.info.role, replica.agreement)

    @precondition(lambda self: self.cell.links)
    @rule(pick=picks)
    def die(self, pick: int) -> None:
        self.cell.die(self._replica(pick).info.replica_id)

    @precondition(lambda self: self.cell.links)
    @rule(pick=picks)
    def drain(self, pick: int) -> None:
        self.cell.pool.drain(self._replica(pick).info.replica_id, self.cell.now)

    @precondition(lambda self: self.cell.links)
    @rule(pick=picks, lost=picks)
    def lose_kv(self, pick: int, lost: int) -> None:
        """A slot forgets some of its end, or all of it."""
        slots = self._replica(pick).slots
        if slots:
            sequence_id = sorted(slots)[lost % len(slots)]
            del slots[sequence_id].ids[lost % 5 :]
            if not slots[sequence_id].ids:
                del slots[sequence_id]

    @precondition(lambda self: self.cell.links)
    @rule(pick=picks)
    def handle(self, pick: int) -> None:
        replica_id = self._replica(pick).info.replica_id
        if self.cell.links[replica_id].inbox:
            self.cell.handle(replica_id)

    @precondition(lambda self: self.cell.links)
    @rule(pick=picks, times=st.integers(1, 2), is_foreign=st.booleans())
    def deliver(self, pick: int, times: int, is_foreign: bool) -> None:
        """An answer arrives, perhaps twice, perhaps behind one of another epoch."""
        replica_id = self._replica(pick).info.replica_id
        if not self.cell.links[replica_id].results:
            return
        self.cell.deliver(replica_id)
        if times == 2 and self.cell.delivered:
            self.cell.pool.on_result(self.cell.delivered[-1], self.cell.now)
        if is_foreign and self.cell.leases:
            result = self._replica(pick).answer_again(self.cell.leases[-1])
            self.cell.pool.on_result(result._replace(epoch=1), self.cell.now)

    @rule(num_turns=st.integers(1, 8))
    def turn(self, num_turns: int) -> None:
        for _ in range(num_turns):
            self.cell.turn()

    @rule()
    def advance(self) -> None:
        self.cell.advance()

    @rule(seconds=st.sampled_from([0.05, 0.1, 1.0, TTL_S]))
    def wait(self, seconds: float) -> None:
        self.cell.now += seconds
        self.cell.advance()

    @invariant()
    def holds(self) -> None:
        invariants.check(self.cell.pool)
        for replica_id, link in self.cell.links.items():
            if not link.inbox and not link.results:
                held = self.cell.pool._replicas.by_id[replica_id].num_reserved_blocks
                assert link.replica.num_used_blocks <= held + self._unsent(replica_id)

    def _unsent(self, replica_id: str) -> int:
        """Blocks of sequences that the replica is told to free with the next advance."""
        slots = self.cell.links[replica_id].replica.slots
        pool = self.cell.pool
        frees = set(pool._replicas.by_id[replica_id].frees)
        for command in pool._commands:
            if isinstance(command, SendFree) and command.replica_id == replica_id:
                frees.update(command.sequence_ids)
        return sum(-(-len(slots[i].ids) // BLOCK_SIZE) for i in frees if i in slots)

    def teardown(self) -> None:
        if not hasattr(self, "cell"):
            return
        for replica_id in list(self.cell.links):
            if self.cell.pool._replicas.by_id[replica_id].is_draining:
                self.cell.turn()
                self.cell.advance()
                assert replica_id in self.cell.drained
                self.cell.die(replica_id)
        self.incarnation += 1
        self._join("last", Role.TARGET, 0)
        self.cell.run()
        invariants.check_empty(self.cell.pool)
        for client in [*self.cell.clients.values(), *self.superseded]:
            client.check_plain()
            if client.request.resume_token_ids != client.plain[: self._num_resumed(client)]:
                assert client.reason in (FinishReason.ERROR, FinishReason.ABORT, None)
        assert all(client.last is not None for client in self.cell.clients.values())
        assert all(link.replica.slots == {} for link in self.cell.links.values())

    def _join(self, replica_id: str, role: Role, agreement: int) -> None:
        self.cell.join(
            info(
                replica_id,
                role,
                incarnation=self.incarnation,
                num_blocks=NUM_BLOCKS,
                block_size=BLOCK_SIZE,
                max_model_len=LONGEST,
            ),
            agreement,
        )

    def _num_resumed(self, client: Client) -> int:
        return len(client.request.resume_token_ids)

    def _client(self, pick: int) -> Client:
        clients = list(self.cell.clients.values())
        return clients[pick % len(clients)]

    def _replica(self, pick: int) -> FakeReplica:
        links = list(self.cell.links.values())
        return links[pick % len(links)].replica


def _lives(count: int) -> settings:
    return settings(
        max_examples=count, stateful_step_count=60, suppress_health_check=list(HealthCheck)
    )


class TestPoolMachine(PoolMachine.TestCase):  # type: ignore[misc,valid-type]
    settings = _lives(15)


@pytest.mark.nightly
class TestPoolMachineForLong(PoolMachine.TestCase):  # type: ignore[misc,valid-type]
    settings = _lives(300)
