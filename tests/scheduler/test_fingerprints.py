"""Exact numerics: a sequence goes on only on a target that is equal to the one that began it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.request import ErrorKind, FinishReason, TokenEvent
from specdec_core.scheduler import SequenceStatus
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, Client, config, request
from tests.scheduler.fake_replica import info


def exact(replica_id: str, fingerprint: str = "here") -> ReplicaInfo:
    return replace(info(replica_id), numerics=Numerics.EXACT, fingerprint=fingerprint)


def fast(replica_id: str, fingerprint: str = "there") -> ReplicaInfo:
    return replace(info(replica_id), fingerprint=fingerprint)


def begun_cell(first: ReplicaInfo) -> tuple[Cell, Client]:
    """One request with some tokens, whose only target has died."""
    cell = Cell(config())
    cell.join(first)
    client = cell.add(request("a"))
    cell.turn()
    cell.turn()
    assert client.token_ids
    cell.die(first.replica_id)
    cell.advance()
    return cell, client


@pytest.mark.parametrize("newcomer", [exact("t2", "there"), fast("t2")])
def test_an_unequal_target_is_kept_out_while_the_others_are_there(newcomer: ReplicaInfo) -> None:
    cell = Cell(config())
    cell.join(exact("t1"))
    with pytest.raises(InvalidRequestError, match="target t2 has the fingerprint 'there', t1"):
        cell.join(newcomer)
    cell.die("t1")
    cell.join(newcomer)


def test_an_exact_target_does_not_join_a_fast_one() -> None:
    cell = Cell(config())
    cell.join(fast("t1"))
    with pytest.raises(InvalidRequestError, match="must have the same fingerprint"):
        cell.join(exact("t2"))


def test_equal_targets_and_any_draft_are_welcome() -> None:
    cell = Cell(config())
    cell.join(exact("t1"))
    cell.join(exact("t2"))
    cell.join(replace(fast("d1"), role=Role.DRAFT))


def test_fast_targets_may_differ() -> None:
    cell = Cell(config())
    cell.join(fast("t1", "one device"))
    cell.join(fast("t2", "another device"))


def test_a_sequence_goes_on_where_it_is_equal() -> None:
    cell, client = begun_cell(exact("t1"))
    cell.join(exact("t2"))
    cell.run()
    client.check_plain()
    assert client.reason is FinishReason.LENGTH


@pytest.mark.parametrize("other", [exact("t2", "there"), fast("t2")])
def test_a_sequence_with_unequal_targets_alone_ends_with_an_error_worth_a_retry(
    other: ReplicaInfo,
) -> None:
    cell, client = begun_cell(exact("t1"))
    cell.join(other)
    cell.run()
    assert client.reason is FinishReason.ERROR
    assert client.last is not None
    assert client.last.error_kind is ErrorKind.RETRYABLE
    assert client.last.error is not None
    assert "here" in client.last.error
    assert "there" in client.last.error
    client.check_plain()
    invariants.check_empty(cell.pool)


def test_a_sequence_that_began_in_fast_numerics_may_go_on_anywhere() -> None:
    cell, client = begun_cell(fast("t1"))
    cell.join(exact("t2"))
    cell.run()
    assert client.reason is FinishReason.LENGTH


def test_a_sequence_without_tokens_is_bound_to_nothing() -> None:
    cell = Cell(config())
    cell.join(exact("t1"))
    client = cell.add(request("a"))
    cell.advance()
    cell.die("t1")
    cell.join(exact("t2", "there"))
    cell.run()
    assert client.reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("fingerprint", "reason"), [("here", FinishReason.LENGTH), ("there", FinishReason.ERROR)]
)
def test_a_resumed_request_is_bound_to_what_emitted_its_tokens(
    fingerprint: str, reason: FinishReason
) -> None:
    """A new coordinator knows of it only what the ingress says."""
    cell = Cell(config())
    resumed = replace(request("a", emitted=(2, 3)), pinned_fingerprint=fingerprint)
    client = cell.add(resumed)
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.WAITING
    cell.join(exact("t1"))
    cell.run()
    assert client.reason is reason


def test_who_is_refused_for_its_fingerprint_is_not_refused_for_the_full_queue_too() -> None:
    """Two resumed requests fill the queue beyond its limit; the newcomer outranks them."""
    cell = Cell(config(max_queued=1, window=1, max_group_size=1))
    cell.join(exact("t1"))
    cell.add(request("running"))
    cell.advance()
    cell.add(request("b", emitted=(2,)))
    cell.add(request("c", emitted=(2,)))
    client = cell.add(replace(request("a", priority=-1), pinned_fingerprint="there"))
    cell.advance()
    assert client.reason is FinishReason.ERROR
    assert cell.pool.status("a") is None


@pytest.mark.parametrize(("target", "pinned"), [(exact("t1"), "here"), (fast("t1"), "")])
def test_the_first_and_the_last_news_of_an_attempt_name_the_exact_target_that_chose_it(
    target: ReplicaInfo, pinned: str
) -> None:
    cell = Cell(config())
    cell.join(target)
    cell.add(request("a", max_tokens=4))
    told: list[str] = []
    while cell.pool.has_work:
        commands = cell.advance()
        told += [c.pinned_fingerprint for c in commands if isinstance(c, TokenEvent)]
        while cell.links["t1"].inbox:
            cell.handle("t1")
        while cell.links["t1"].results:
            cell.deliver("t1")
    assert told == [pinned, "", "", pinned]
