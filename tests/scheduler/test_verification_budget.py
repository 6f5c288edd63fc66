"""Which drafted tokens are left out when a pass may not verify all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.config import SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import LeaseRow, Role
from specdec_core.scheduler import AcceptanceHistory, FixedPolicy
from specdec_core.scheduler.rows import ScheduledRow
from specdec_core.scheduler.sequence import Round, Sequence
from specdec_core.scheduler.verification_budget import (
    acceptance_rate,
    keep_within,
    keep_worthwhile,
    whole_tiles,
)
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.k_policy import Decision, DraftLengthReason, OfferedRow
from specdec_core.speculation.ngram import NgramDrafter
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info

numbers = itertools.count()


def plan(num_drafted: int, accepted: int = 0, drafted: int = 0) -> ScheduledRow:
    """A row of a sequence whose past rounds accepted so many of so many drafted tokens."""
    sequence = Sequence(next(numbers), request("a"), 0.0)
    sequence.history.record(drafted, accepted)
    row = LeaseRow(
        sequence_id=sequence.sequence_id,
        base_len=9,
        base_hash=0,
        new_ids=(1,),
        proposal=tuple(range(num_drafted)),
        num_choices=num_drafted + 1,
    )
    return ScheduledRow(
        sequence=sequence,
        lease_row=row,
        slot_len=10 + num_drafted,
    )


@pytest.mark.parametrize(
    ("rows", "tile", "expected"), [(33, 32, 64), (32, 32, 32), (1, 32, 32), (33, 0, 33)]
)
def test_a_budget_is_raised_to_whole_tiles(rows: int, tile: int, expected: int) -> None:
    assert whole_tiles(rows, tile) == expected


def test_nothing_is_left_out_within_the_budget() -> None:
    plans = [plan(4), plan(0), plan(2)]
    assert keep_within(plans, 9) == plans


def test_the_least_promising_tokens_go_first() -> None:
    good, bad = plan(4, accepted=8, drafted=8), plan(4, accepted=0, drafted=8)
    kept = keep_within([good, bad], max_rows=6)
    assert [len(p.proposal) for p in kept] == [4, 0]
    assert kept[1].num_choices == 1
    assert kept[1].slot_len == kept[1].end_len


def test_sequences_alike_are_cut_alike() -> None:
    kept = keep_within([plan(4), plan(4), plan(4)], max_rows=9)
    assert [len(p.proposal) for p in kept] == [2, 2, 2]
    assert kept[0].proposal == (0, 1), "a proposal is cut at its end"


def test_of_equal_promises_the_later_row_gives_way() -> None:
    kept = keep_within([plan(4), plan(4), plan(4)], max_rows=13)
    assert [len(p.proposal) for p in kept] == [4, 3, 3]


def test_a_sequence_without_a_past_counts_as_one_half() -> None:
    history = AcceptanceHistory()
    assert acceptance_rate(history) == 0.5
    history.record(4, 3)
    assert acceptance_rate(history) == 4 / 6


def test_a_catch_up_that_chooses_nothing_stays_as_it_is() -> None:
    catch_up = plan(0)
    catch_up.lease_row = catch_up.lease_row._replace(num_choices=0)
    assert keep_within([catch_up, plan(3)], max_rows=1)[0] == catch_up


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1), st.integers(1, 60))
def test_the_budget_holds_and_no_row_is_lost(rows: list[tuple[int, int]], max_rows: int) -> None:
    plans = [plan(length, min(accepted, 8), 8) for length, accepted in rows]
    kept = keep_within(plans, max_rows)
    assert sum(p.num_choices for p in kept) <= max(max_rows, len(plans))
    assert all(p.num_choices == len(p.proposal) + 1 for p in kept)
    total = sum(p.num_choices for p in plans)
    if total > max_rows:
        assert sum(p.num_choices for p in kept) == max(max_rows, len(plans)), "and is used"


def test_a_budget_smaller_than_a_group_is_refused() -> None:
    with pytest.raises(ValueError, match="verification_budget must be at least max_group_size=8"):
        SchedulerConfig(max_group_size=8, verification_budget=7)


@pytest.mark.parametrize(("tile_rows", "num_choices"), [(0, 5), (3, 6), (100, 8)])
def test_a_target_s_group_keeps_to_the_budget_in_whole_tiles(
    tile_rows: int, num_choices: int
) -> None:
    """Two rows of 3 drafted tokens and one choice more."""
    cell = Cell(config(SpecMethod.NGRAM, max_group_size=2, verification_budget=5))
    cell.join(replace(info(), tile_rows=tile_rows))
    clients = [cell.add(request(str(i), (1, 2, 3, 1, 2, 3, 1, 2), seed=i)) for i in range(2)]
    cell.advance()
    assert sum(row.num_choices for row in cell.leases[0].rows) == num_choices
    cell.run()
    for client in clients:
        client.check_plain()


class OneEach(FixedPolicy):
    """Wants one drafted token of each row checked; remembers what it was offered."""

    offered: ClassVar[list[list[OfferedRow]]] = []

    @property
    def is_selective(self) -> bool:
        return True

    def num_checked(self, rows: Iterable[OfferedRow], tile_rows: int) -> list[Decision]:
        self.offered.append(list(rows))
        reason = DraftLengthReason.GOODPUT
        return [Decision(min(len(row.offer.tokens), 1), reason) for row in self.offered[-1]]


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL])
def test_a_target_s_group_checks_what_the_policy_chooses(method: SpecMethod) -> None:
    OneEach.offered.clear()
    cell = Cell(config(method, max_group_size=2, prefill_chunk=3), k_policy=OneEach(3))
    cell.join(info("target"))
    if method is SpecMethod.DRAFT_MODEL:
        cell.join(info("draft", Role.DRAFT))
    prompt = (1, 2, 3, 1, 2, 3, 1, 2)
    clients = [cell.add(request("free", prompt, 20)), cell.add(request("b", prompt, 20))]
    clients.append(cell.add(request("named", prompt, 20, num_draft_tokens=2)))
    cell.run()
    for client in clients:
        client.check_plain()
    groups = [lease.rows for lease in cell.leases if lease.role is Role.TARGET]
    rows = [row for group in groups for row in group]
    assert max(len(row.proposal) for row in rows) == 1
    assert any(not row.num_choices for row in rows), "chunks of the prompt, which offer nothing"
    offers = [offer for group in OneEach.offered for offer in group]
    checking = [group for group in groups if any(row.proposal for row in group)]
    assert 0 < len(checking) < len(groups), "nothing is asked of a group that offers nothing"
    assert len(offers) == sum(row.num_choices > 0 for group in checking for row in group)
    assert {row.source for row in offers if row.offer.tokens} == {method.value}
    kinds = {row.offer.kinds[:1] for row in offers if row.offer.tokens}
    by_model = method is SpecMethod.DRAFT_MODEL
    assert kinds == {()} if by_model else kinds and kinds <= {(1,), (2,), (3,)}


class Told:
    """A policy that keeps these many tokens of the rows; remembers what it was asked."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = list(lengths)
        self.offers: list[OfferedRow] = []
        self.tile_rows = 0

    def num_checked(self, rows: Iterable[OfferedRow], tile_rows: int) -> list[Decision]:
        self.offers, self.tile_rows = list(rows), tile_rows
        return [Decision(length, DraftLengthReason.PROBE) for length in self.lengths]


def begun(plan: ScheduledRow, *, is_drafted: bool = False, kind: int = 0) -> ScheduledRow:
    count, plan.reason = len(plan.proposal), DraftLengthReason.GOODPUT
    local = Offer(plan.proposal, (0.5,) * count, (kind,) * count)
    plan.sequence.drafter = NgramDrafter(SpeculationConfig())
    plan.sequence.round = Round(9, 4, local, plan.reason, count, local)
    if is_drafted:
        plan.sequence.round.take_draft(plan.proposal, plan.reason)
    return plan


def test_a_policy_is_told_what_each_row_offers_and_has_its_way() -> None:
    found, drafted = begun(plan(4), kind=3), begun(plan(3), is_drafted=True, kind=3)
    bare, catch_up = begun(plan(0)), begun(plan(0))
    catch_up.lease_row = catch_up.lease_row._replace(num_choices=0)
    policy: Any = Told(1, 0, 2)
    kept = keep_worthwhile([found, catch_up, bare, drafted], policy, tile_rows=16)
    assert [len(one.proposal) for one in kept] == [1, 0, 0, 2]
    assert policy.tile_rows == 16
    assert [len(row.offer.tokens) for row in policy.offers] == [4, 0, 3]
    assert [row.source for row in policy.offers if row.offer.tokens] == ["ngram", "draft_model"]
    assert [row.offer.kinds for row in policy.offers] == [(3, 3, 3, 3), (), ()]
    left = found.sequence.max_len - len(found.sequence.ids)
    assert [offer.num_left for offer in policy.offers] == [left] * 3
    assert [one.reason for one in kept] == [
        DraftLengthReason.PROBE,
        DraftLengthReason.GOODPUT,
        DraftLengthReason.GOODPUT,
        DraftLengthReason.PROBE,
    ]


def test_a_shorter_plan_is_of_the_same_row() -> None:
    whole = plan(4)
    whole.is_resuming = True
    short = whole.shortened(1, DraftLengthReason.ROOM)
    assert short.sequence is whole.sequence
    assert short.is_resuming
    assert (short.slot_len, short.lease_row.num_choices, short.proposal) == (11, 2, (0,))
