"""KV blocks: counted as the replica allocates them, taken back from the youngest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.config import SpecMethod
from specdec_core.messages import LeaseRow, Role, RowStatus
from specdec_core.request import FinishReason
from specdec_core.scheduler import SequenceStatus
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, Client, config, request
from tests.scheduler.fake_replica import info


def finish(cell: Cell, clients: list[Client]) -> None:
    cell.run()
    for client in clients:
        client.check_plain()
        assert client.reason in (FinishReason.LENGTH, FinishReason.STOP)
    invariants.check_empty(cell.pool)


def draft_rows(cell: Cell) -> list[LeaseRow]:
    return [row for lease in cell.leases if lease.role is Role.DRAFT for row in lease.rows]


def test_the_youngest_sequence_makes_room_and_continues_with_the_same_tokens() -> None:
    cell = Cell(config())
    cell.join(info(num_blocks=6, block_size=2))
    clients = [cell.add(request(str(i), (1, 2, 3, 4), max_tokens=8)) for i in range(2)]
    while cell.pool.counters().num_preemptions == 0:
        cell.turn()
    assert cell.pool.status("1") is SequenceStatus.WAITING
    finish(cell, clients)
    old, young = (client.last for client in clients)
    assert old is not None
    assert young is not None
    assert old.stats is not None
    assert young.stats is not None
    assert old.stats.num_preemptions == 0
    assert young.stats.num_preemptions >= 1


def test_a_sequence_that_finds_no_room_keeps_what_it_has() -> None:
    """The older one takes the fifth block; the younger one waits for it, in its place."""
    cell = Cell(config())
    cell.join(info(num_blocks=5, block_size=2))
    clients = [cell.add(request(str(i), (1, 2, 3), max_tokens=4)) for i in range(2)]
    for _ in range(3):
        cell.turn()
    assert [row.sequence_id for row in cell.leases[-1].rows] == [0]
    assert cell.pool.status("1") is not SequenceStatus.WAITING
    finish(cell, clients)
    assert cell.pool.counters().num_preemptions == 0


def test_a_sequence_that_is_leased_out_gives_no_room() -> None:
    """With two groups out at once, the older sequence comes back first and finds no block."""
    cell = Cell(config(max_group_size=1, max_open_leases=2))
    cell.join(info(num_blocks=4, block_size=2))
    clients = [cell.add(request(str(i), (1, 2, 3, 4), max_tokens=3)) for i in range(2)]
    cell.advance()
    assert len(cell.leases) == 2
    cell.handle("target")
    cell.deliver("target")
    cell.advance()
    assert cell.pool.status("1") is SequenceStatus.VERIFYING
    finish(cell, clients)


def test_the_oldest_goes_on_when_the_one_whose_turn_it_is_finds_no_room() -> None:
    """Sequence 0 has the lower priority but has waited longer when both need a third block."""
    cell = Cell(config(max_group_size=1, window=2))
    cell.join(info(num_blocks=4, block_size=2))
    clients = [cell.add(request("0", max_tokens=5, priority=1))]
    cell.advance()
    clients.append(cell.add(request("1", max_tokens=5)))
    for _ in range(4):
        cell.now += 1.0
        cell.handle("target")
        cell.deliver("target")
        cell.advance()
    assert [lease.rows[0].sequence_id for lease in cell.leases] == [0, 1, 0, 1, 1]
    assert cell.pool.status("0") is SequenceStatus.WAITING
    finish(cell, clients)


def test_a_preempted_sequence_is_admitted_before_those_that_came_later() -> None:
    cell = Cell(config())
    cell.join(info(num_blocks=6, block_size=2))
    clients = [cell.add(request(str(i), (1, 2, 3, 4), max_tokens=8)) for i in range(3)]
    finish(cell, clients)
    first_use: list[int] = []
    for lease in cell.leases:
        first_use += [row.sequence_id for row in lease.rows if row.base_len == 0]
    assert first_use == [0, 1, 2, 1, 2]


def test_a_proposal_shrinks_before_anybody_is_preempted() -> None:
    cell = Cell(config(SpecMethod.NGRAM, num_draft_tokens=8))
    cell.join(info(num_blocks=3, block_size=4))
    client = cell.add(request("a", (1, 2, 1, 2, 1, 2, 1), max_tokens=5))
    cell.add(request("b", (1, 2), max_tokens=1))
    cell.advance()
    first, second = cell.leases[0].rows
    assert len(first.proposal) == 1  # 7 + 1 fill its two blocks; "b" holds the third
    assert second.proposal == ()
    finish(cell, [client])
    assert cell.pool.counters().num_preemptions == 0


@pytest.mark.parametrize("agreement", [0, 50, 100])
def test_blocks_of_rejected_tokens_are_given_back_at_once(agreement: int) -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, num_draft_tokens=8))
    target = cell.join(info("target", block_size=1))
    cell.join(info("draft", Role.DRAFT, block_size=1), agreement)
    cell.add(request("a", max_tokens=40))
    cell.turn()
    while cell.pool.status("a") is not None:
        reserved = cell.pool._replicas.by_id["target"].num_reserved_blocks
        assert reserved - target.num_used_blocks in (0, 1)  # 1: for the pending token
        cell.turn()


def test_a_draft_without_room_for_all_keeps_the_oldest() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT, num_blocks=5, block_size=4), agreement=100)
    clients = [cell.add(request(str(i), (1, 2, 3), max_tokens=16, seed=i)) for i in range(3)]
    finish(cell, clients)
    first_uses = [row.sequence_id for row in draft_rows(cell) if row.base_len == 0]
    assert first_uses.count(0) == 1
    assert len(first_uses) > 3


def test_a_replica_that_has_less_room_than_it_said_only_delays() -> None:
    cell = Cell(config())
    cell.join(info())
    clients = [cell.add(request(str(i))) for i in range(2)]
    cell.advance()
    cell.handle("target")
    cell.links["target"].replica.reset()
    cell.answer_with("target", RowStatus.NO_ROOM)
    assert cell.pool.counters().num_preemptions == 1
    cell.run()
    reasons = {client.reason for client in clients}
    assert FinishReason.LENGTH in reasons


@pytest.mark.parametrize("method", SpecMethod)
@settings(max_examples=12)
@given(
    prompts=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=9),
    num_blocks=st.integers(10, 16),
    block_size=st.integers(2, 4),
    num_draft_tokens=st.integers(0, 6),
    chunk=st.integers(1, 8),
    agreement=st.sampled_from([0, 60, 100]),
)
def test_under_any_shortage_every_request_gets_its_plain_ids(
    method: SpecMethod,
    prompts: list[list[int]],
    num_blocks: int,
    block_size: int,
    num_draft_tokens: int,
    chunk: int,
    agreement: int,
) -> None:
    limits = {"max_group_size": 3, "window": 6, "prefill_chunk": chunk}
    cell = Cell(config(method, num_draft_tokens, **limits))
    cell.join(info("target", num_blocks=num_blocks, block_size=block_size))
    cell.join(info("draft", Role.DRAFT, num_blocks=num_blocks, block_size=block_size), agreement)
    clients = [
        cell.add(request(str(i), tuple(prompt), max_tokens=8, seed=i))
        for i, prompt in enumerate(prompts)
    ]
    finish(cell, clients)
    assert cell.pool.counters().num_kv_misses == 0
