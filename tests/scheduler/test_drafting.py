"""Who proposes, when a draft replica is asked, and what happens without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import pytest

from specdec_core.config import DRAFT_MODEL_METHODS, SpecMethod
from specdec_core.messages import GroupLease, Role, RowStatus
from specdec_core.request import FinishReason
from specdec_core.scheduler import AcceptanceHistory, FixedPolicy, SequenceStatus
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.k_policy import Decision, DraftLengthReason, OfferedRow
from tests.scheduler.cell import Cell, Client, config, request
from tests.scheduler.fake_replica import info

LOOPING_PROMPT = (1, 2, 3, 1, 2, 3, 1, 2)


def make_cell(method: SpecMethod, num_draft_tokens: int = 3, **limits: Any) -> Cell:
    cell = Cell(config(method, num_draft_tokens, **limits))
    cell.join(info("target"))
    return cell


def with_draft(cell: Cell, agreement: int = 100, num_blocks: int = 1000) -> Cell:
    cell.join(info("draft", Role.DRAFT, num_blocks=num_blocks), agreement)
    return cell


class Asked(NamedTuple):
    """What a policy was told when it was asked for K."""

    num_accepted: int
    num_live: int
    targets_per_draft: float


class Listening(FixedPolicy):
    """Remembers what it is asked, and whose tokens it learns of."""

    asked: ClassVar[list[Asked]] = []
    learnt: ClassVar[list[tuple[str, Offer]]] = []

    def draft_steps(
        self,
        history: AcceptanceHistory,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        local: OfferedRow | None = None,
    ) -> Decision:
        self.asked.append(Asked(history.num_accepted, num_live, targets_per_draft))
        return Decision(min(self.chosen(history), limit), DraftLengthReason.CONFIGURED)

    def chosen(self, history: AcceptanceHistory) -> int:
        return self.k

    def learn(self, history: AcceptanceHistory, source: str, offer: Offer, chosen: Any) -> None:
        self.learnt.append((source, offer))


class EveryOther(Listening):
    """Drafts in every other round."""

    def chosen(self, history: AcceptanceHistory) -> int:
        return self.k if history.num_rounds % 2 else 0


@pytest.fixture(autouse=True)
def _heard_nothing() -> None:
    Listening.asked.clear()
    Listening.learnt.clear()


def leases_of(cell: Cell, role: Role) -> list[GroupLease]:
    return [lease for lease in cell.leases if lease.role is role]


def proposals(cell: Cell) -> list[tuple[int, ...]]:
    return [row.proposal for lease in leases_of(cell, Role.TARGET) for row in lease.rows]


def finish(cell: Cell, *clients: Client) -> None:
    cell.run()
    for client in clients:
        client.check_plain()
        assert client.reason in (FinishReason.LENGTH, FinishReason.STOP)


def test_method_none_never_proposes() -> None:
    cell = with_draft(make_cell(SpecMethod.NONE))
    finish(cell, cell.add(request("a", LOOPING_PROMPT)))
    assert set(proposals(cell)) == {()}
    assert not leases_of(cell, Role.DRAFT)


def test_a_request_can_switch_speculation_off() -> None:
    cell = with_draft(make_cell(SpecMethod.HYBRID))
    finish(cell, cell.add(request("a", LOOPING_PROMPT, speculation_enabled=False)))
    assert set(proposals(cell)) == {()}
    assert not leases_of(cell, Role.DRAFT)


def test_ngram_proposals_are_made_in_the_pool_with_the_very_first_pass() -> None:
    cell = with_draft(make_cell(SpecMethod.NGRAM))
    finish(cell, cell.add(request("a", LOOPING_PROMPT)))
    assert proposals(cell)[0] == (3, 1, 2)
    assert not leases_of(cell, Role.DRAFT)


def test_a_chunk_of_the_prompt_carries_no_proposal() -> None:
    cell = make_cell(SpecMethod.NGRAM, prefill_chunk=2)
    finish(cell, cell.add(request("a", (*LOOPING_PROMPT, 3, 1, 2))))
    rows = [lease.rows[0] for lease in leases_of(cell, Role.TARGET)]
    assert [(row.num_choices, row.proposal) for row in rows[:3]] == [
        (0, ()),
        (0, ()),
        (4, (3, 1, 2)),
    ]


def test_the_first_token_never_waits_for_the_draft() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL))
    client = cell.add(request("a"))
    cell.advance()
    side, first = leases_of(cell, Role.DRAFT)[0].rows[0], leases_of(cell, Role.TARGET)[0].rows[0]
    assert (side.new_ids, side.num_choices) == ((1, 2, 3), 0)
    assert (first.new_ids, first.num_choices) == ((1, 2, 3), 1)
    finish(cell, client)


def test_a_caught_up_draft_proposes_and_its_cache_is_fed_only_what_it_lacks() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL))
    finish(cell, cell.add(request("a", max_tokens=9)))
    rows = [lease.rows[0] for lease in leases_of(cell, Role.DRAFT)]
    # 3 prompt tokens aside; then the first token; then the last draft token and the bonus token.
    assert [(row.base_len, len(row.new_ids), row.num_choices) for row in rows] == [
        (0, 3, 0),
        (3, 1, 3),
        (6, 2, 3),
    ]


@pytest.mark.parametrize("method", [SpecMethod.DRAFT_MODEL, SpecMethod.HYBRID])
@pytest.mark.parametrize("agreement", [0, 50, 100])
def test_a_draft_never_needs_a_miss_to_find_its_place_after_a_rejection(
    agreement: int, method: SpecMethod
) -> None:
    """Nor behind tokens that came without it: hybrid's n-gram rounds."""
    cell = with_draft(make_cell(method), agreement)
    finish(cell, *[cell.add(request(str(i), (i % 5, 2), 20, seed=i)) for i in range(6)])
    assert any(row.num_choices for lease in leases_of(cell, Role.DRAFT) for row in lease.rows)
    assert cell.pool.counters().num_kv_misses == 0


def test_a_long_catch_up_of_the_draft_goes_aside_in_chunks() -> None:
    cell = make_cell(SpecMethod.DRAFT_MODEL, prefill_chunk=4)
    client = cell.add(request("a", (1, 2, 3, 4) * 4, max_tokens=30))
    for _ in range(6):
        cell.turn()
    assert cell.pool.status("a") is SequenceStatus.READY
    with_draft(cell)
    finish(cell, client)
    rows = [lease.rows[0] for lease in leases_of(cell, Role.DRAFT)]
    assert all(len(row.new_ids) <= 4 for row in rows)
    num_side = next(i for i, row in enumerate(rows) if row.num_choices > 0)
    assert num_side >= 4
    assert len(rows) > num_side


def test_a_proposal_never_exceeds_the_remaining_budget() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL, num_draft_tokens=8))
    finish(cell, *[cell.add(request(str(n), max_tokens=n)) for n in (1, 2, 3, 6)])
    for lease in leases_of(cell, Role.DRAFT):
        assert all(row.num_choices <= 4 for row in lease.rows)
    by_request = cell.clients["6"]
    assert by_request.last is not None
    assert by_request.last.stats is not None
    assert by_request.last.stats.num_drafted == 4  # 6 = 1 plain + 4 drafted + 1 bonus


def test_a_nearly_finished_sequence_does_not_shorten_the_proposals_of_its_group() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL, num_draft_tokens=4))
    finish(cell, cell.add(request("short", max_tokens=3)), cell.add(request("long", max_tokens=30)))
    first = next(
        lease for lease in leases_of(cell, Role.DRAFT) if any(r.num_choices for r in lease.rows)
    )
    assert [row.num_choices for row in first.rows] == [1, 4]


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL])
@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (3, 2), (None, 2)])
def test_a_request_s_k_is_an_upper_limit_for_the_policy(
    method: SpecMethod, asked: int | None, expected: int
) -> None:
    """The policy wants 2 of the 5 tokens that the configuration allows."""
    cell = Cell(config(method, num_draft_tokens=5), k_policy=FixedPolicy(2))
    cell.join(info("target"))
    if method in DRAFT_MODEL_METHODS:
        with_draft(cell)
    finish(cell, cell.add(request("a", LOOPING_PROMPT, 20, num_draft_tokens=asked)))
    assert max(len(proposal) for proposal in proposals(cell)) == expected


@pytest.mark.parametrize(("asked", "expected"), [(0, 0), (1, 1), (9, 3)])
def test_a_request_chooses_its_k_below_the_configured_one(asked: int, expected: int) -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL, num_draft_tokens=3))
    finish(cell, cell.add(request("a", max_tokens=20, num_draft_tokens=asked)))
    assert max(len(proposal) for proposal in proposals(cell)) == expected


def test_the_k_policy_sees_the_history_and_the_live_sequences_once_per_round() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL), k_policy=EveryOther(2))
    cell.join(info("target"))
    with_draft(cell)
    finish(cell, cell.add(request("a", max_tokens=9)))
    assert [one[:2] for one in Listening.asked] == [(0, 1), (0, 1), (2, 1), (2, 1)]
    assert [len(proposal) for proposal in proposals(cell)] == [0, 2, 0, 2, 0]


def test_the_k_policy_counts_the_sequences_of_the_target() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL), k_policy=Listening(2))
    cell.join(info("target"))
    cell.add(request("a"))
    cell.add(request("b"))
    cell.advance()
    assert [one.num_live for one in Listening.asked] == [2, 2]


@pytest.mark.parametrize("num_draft_tokens", [1, 3])
def test_a_draft_is_not_asked_in_a_round_without_drafting(num_draft_tokens: int) -> None:
    limits = config(SpecMethod.DRAFT_MODEL, num_draft_tokens)
    cell = Cell(limits, k_policy=FixedPolicy(0))
    cell.join(info("target"))
    with_draft(cell)
    finish(cell, cell.add(request("a")))
    assert leases_of(cell, Role.DRAFT) == []


def test_without_a_draft_replica_ngram_proposes_for_the_draft_model() -> None:
    cell = make_cell(SpecMethod.DRAFT_MODEL)
    finish(cell, cell.add(request("a", LOOPING_PROMPT)))
    assert proposals(cell)[0] == (3, 1, 2)


def test_a_draft_without_room_leaves_its_sequences_to_ngram() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL), num_blocks=1)
    finish(cell, cell.add(request("a", LOOPING_PROMPT)))
    assert not leases_of(cell, Role.DRAFT)
    assert proposals(cell)[0] == (3, 1, 2)


def test_a_sequence_that_outgrows_its_draft_goes_on_without_it() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL), num_blocks=3)
    finish(cell, cell.add(request("a", max_tokens=40)))
    assert leases_of(cell, Role.DRAFT)


def test_hybrid_asks_the_draft_only_where_ngram_finds_nothing() -> None:
    cell = with_draft(make_cell(SpecMethod.HYBRID))
    finish(cell, cell.add(request("a", LOOPING_PROMPT, max_tokens=2)))
    assert proposals(cell)[0] == (3,)
    finish(cell, cell.add(request("b", (4, 0), max_tokens=9)))
    assert any(row.num_choices for lease in leases_of(cell, Role.DRAFT) for row in lease.rows)


def test_a_dead_draft_delays_nobody_and_is_used_again_when_it_returns() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL))
    client = cell.add(request("a", max_tokens=40))
    cell.turn()
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.DRAFTING
    cell.die("draft")
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.VERIFYING
    num_before = len(leases_of(cell, Role.DRAFT))
    with_draft(cell)
    finish(cell, client)
    assert len(leases_of(cell, Role.DRAFT)) > num_before


@pytest.mark.parametrize("status", [RowStatus.FAILED, RowStatus.NO_ROOM, RowStatus.NOT_READY])
def test_a_draft_that_refuses_a_row_never_ends_the_request(status: RowStatus) -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL))
    client = cell.add(request("a", max_tokens=9))
    cell.advance()
    cell.handle("draft")
    cell.answer_with("draft", status)
    finish(cell, client)
    assert len(leases_of(cell, Role.DRAFT)) == 1
    assert cell.links["draft"].replica.slots == {}


def test_a_sequence_that_waits_for_a_target_takes_no_place_on_a_draft() -> None:
    cell = make_cell(SpecMethod.DRAFT_MODEL)
    client = cell.add(request("a"))
    cell.advance()
    cell.die("target")
    draft = with_draft(cell).links["draft"].replica
    cell.advance()
    assert cell.pool.counters().replicas[0].num_sequences == 0
    cell.join(info("target", incarnation=2))
    finish(cell, client)
    assert draft.executed


def test_one_draft_serves_several_targets() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL))
    cell.join(info("target2"))
    clients = [cell.add(request(str(i), max_tokens=12, seed=i)) for i in range(4)]
    finish(cell, *clients)
    assert all(replica.num_rows > 2 for replica in cell.pool.counters().replicas)


def test_a_proposal_waits_for_a_replaced_target_to_catch_up() -> None:
    cell = with_draft(make_cell(SpecMethod.DRAFT_MODEL, prefill_chunk=2))
    client = cell.add(request("a", max_tokens=9))
    for _ in range(50):
        cell.turn()
        if cell.pool.status("a") is SequenceStatus.PROPOSED:
            break
    cell.die("target")
    num_before = len(leases_of(cell, Role.DRAFT))
    cell.join(info("target", incarnation=2))
    while not proposals(cell)[-1]:
        cell.turn()
    assert len(leases_of(cell, Role.DRAFT)) == num_before
    finish(cell, client)


@pytest.mark.parametrize(
    ("num_drafts", "left_out", "expected"),
    [(1, "", 2.0), (2, "", 1.0), (2, "draft1", 2.0), (2, "idle", 1.0)],
    ids=["two targets, one draft", "two drafts", "one of them drains", "an idle target drains"],
)
def test_the_k_policy_hears_how_many_targets_share_a_draft(
    num_drafts: int, left_out: str, expected: float
) -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, max_group_size=2, window=2), k_policy=Listening(2))
    for number in range(num_drafts):
        cell.join(info(f"draft{number}", Role.DRAFT))
    for name in ("a", "b"):
        cell.join(info(name))
    if left_out:
        if left_out == "idle":
            cell.join(info("idle"))
        cell.pool.drain(left_out, cell.now)
    clients = [cell.add(request(str(number), max_tokens=12)) for number in range(4)]
    cell.run()
    for client in clients:
        client.check_plain()
    assert {one.targets_per_draft for one in Listening.asked[8:24]} == {expected}


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL])
def test_the_k_policy_learns_whose_tokens_they_were_and_how_many_agreed(
    method: SpecMethod,
) -> None:
    cell = Cell(config(method), k_policy=Listening(2))
    cell.join(info("target"))
    if method is SpecMethod.DRAFT_MODEL:
        with_draft(cell)
    finish(cell, cell.add(request("a", (1, 2, 3, 1, 2, 3, 1, 2), max_tokens=16)))
    by_model = method is SpecMethod.DRAFT_MODEL
    assert {source for source, _ in Listening.learnt} == {method.value}
    kinds = {offer.kinds for _, offer in Listening.learnt}
    assert kinds == {()} if by_model else kinds <= {(1, 2), (2, 3), (3, 3)} and kinds


def test_a_draft_is_told_how_sure_it_has_to_be() -> None:
    told = config(SpecMethod.DRAFT_MODEL)
    told = replace(told, speculation=replace(told.speculation, min_confidence=0.3))
    cell = Cell(told)
    cell.join(info("target"))
    with_draft(cell)
    finish(cell, cell.add(request("a", max_tokens=9)))
    assert {lease.min_confidence for lease in cell.leases} == {0.3}
