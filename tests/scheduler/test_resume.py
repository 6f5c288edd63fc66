"""What a client brings back is checked in few passes: its answer goes on, or ends at the first
difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from specdec_core.config import DRAFT_MODEL_METHODS, SchedulerConfig, SpecMethod
from specdec_core.errors import InvalidRequestError
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import GroupLease, GroupResult, Role
from specdec_core.request import ErrorKind, FinishReason, Request
from specdec_core.scheduler import DraftLengthReason, FixedPolicy
from specdec_core.speculation.k_policy import Decision, OfferedRow
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, Client, config, request
from tests.scheduler.fake_replica import VOCAB_SIZE, info, logprobs_of
from tests.scheduler.test_k_cause import causes

LONG = request("a", max_tokens=24)
STOPPED = request("a", (4, 1, 2, 2), max_tokens=40, seed=3, stop_token_ids=(0,))
CHUNK = 5


def plain(asked: Request) -> tuple[int, ...]:
    return Client(asked).plain


def resumed(asked: Request, count: int) -> Request:
    return replace(asked, resume_token_ids=plain(asked)[:count])


def wrong_at(asked: Request, place: int, count: int) -> Request:
    """Ids that differ in one place, and end nothing there."""
    ids = list(plain(asked)[:count])
    others = (i % VOCAB_SIZE for i in range(ids[place] + 1, ids[place] + VOCAB_SIZE))
    ids[place] = next(i for i in others if i not in asked.stop_ids)
    return replace(asked, resume_token_ids=tuple(ids))


def serve(asked: Request, pool: SchedulerConfig, *, has_draft: bool = False) -> tuple[Cell, Client]:
    cell = Cell(pool)
    cell.join(info(max_model_len=2000))
    if has_draft:
        cell.join(info("draft", Role.DRAFT))
    client = cell.add(asked)
    cell.run()
    invariants.check_empty(cell.pool)
    return cell, client


@pytest.mark.parametrize("asked", [LONG, STOPPED])
@pytest.mark.parametrize("method", SpecMethod)
def test_resumed_at_every_place_it_ends_as_it_would_have(
    asked: Request, method: SpecMethod
) -> None:
    for count in range(len(plain(asked)) + 1):
        pool = config(method, prefill_chunk=CHUNK)
        _, client = serve(resumed(asked, count), pool, has_draft=method in DRAFT_MODEL_METHODS)
        assert client.reason in (FinishReason.STOP, FinishReason.LENGTH)
        client.check_plain()


@pytest.mark.parametrize("asked", [LONG, STOPPED])
def test_a_wrong_id_at_any_place_ends_it_with_both_ids(asked: Request) -> None:
    ids = plain(asked)
    for place in range(len(ids)):
        for count in {place + 1, len(ids)}:
            wrong = wrong_at(asked, place, count)
            _, client = serve(wrong, config(prefill_chunk=CHUNK))
            assert client.last is not None
            assert client.last.error_kind is ErrorKind.INVALID
            assert client.last.error == (
                f"resume: token id {wrong.resume_token_ids[place]} at position {place} is not this "
                f"request's: its answer has {ids[place]} there"
            )
            client.check_plain()


@pytest.mark.parametrize(
    "prompt_len",
    [1, 256, 257, *(pytest.param(n, marks=pytest.mark.nightly) for n in (100, 255, 700))],
)
def test_500_ids_take_at_most_three_passes_more_than_a_prompt_of_that_length(
    prompt_len: int,
) -> None:
    prompt = tuple(i % VOCAB_SIZE for i in range(prompt_len))
    first = request("a", prompt, max_tokens=501)
    anew, _ = serve(request("a", (*prompt, *plain(first)[:500]), max_tokens=1), SchedulerConfig())
    again, client = serve(resumed(first, 500), SchedulerConfig())
    assert tuple(client.token_ids) == plain(first)
    assert len(again.leases) <= len(anew.leases) + 3


def test_log_probabilities_come_for_every_token() -> None:
    params = replace(LONG.params, num_logprobs=2, num_prompt_logprobs=1)
    asked = replace(LONG, params=params)
    _, client = serve(resumed(asked, 11), config(prefill_chunk=CHUNK))
    ids = (*asked.prompt_token_ids, *client.token_ids)
    ends = range(len(asked.prompt_token_ids), len(ids))
    expected: list[TokenLogprobs] = [logprobs_of(ids[:end], params) for end in ends]
    assert client.logprobs == expected


def test_it_goes_on_at_another_coordinator_that_knows_how_far_it_was() -> None:
    for num_emitted in range(13):
        asked = replace(resumed(LONG, 9), emitted_token_ids=plain(LONG)[:num_emitted])
        _, client = serve(asked, config(prefill_chunk=CHUNK))
        client.check_plain()
        assert client.reason is FinishReason.LENGTH


def test_what_was_brought_back_counts_as_nobodys_draft() -> None:
    cell, client = serve(resumed(LONG, 20), config(SpecMethod.NGRAM, 3, prefill_chunk=8))
    assert client.last is not None
    assert client.last.stats is not None
    counters = cell.pool.counters()
    assert client.last.stats.num_drafted == counters.num_drafted
    assert causes(cell)[DraftLengthReason.RESUME] == 3
    assert counters.num_drafted <= 3 * 4


class _Observer(FixedPolicy):
    """Keeps the passes that it is told of, and would check no drafted token."""

    def __init__(self, hear: Callable[[GroupLease], None]) -> None:
        super().__init__(3)
        object.__setattr__(self, "_hear", hear)

    __slots__ = ("_hear",)

    @property
    def is_selective(self) -> bool:
        return True

    def num_checked(self, rows: Sequence[OfferedRow], tile_rows: int) -> list[Decision]:
        return [Decision(0, DraftLengthReason.GOODPUT) for _ in rows]

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        self._hear(lease)


def test_the_policy_neither_cuts_it_nor_learns_of_it() -> None:
    heard: list[GroupLease] = []
    cell = Cell(config(SpecMethod.NGRAM, 3, prefill_chunk=8), _Observer(heard.append))
    cell.join(info())
    cell.add(resumed(LONG, 20))
    cell.run()
    lengths = [len(row.proposal) for lease in cell.leases for row in lease.rows]
    assert lengths[:3] == [5, 7, 6]
    assert not any(lengths[3:])
    assert heard == cell.leases[3:]


def test_the_verification_budget_is_not_for_it() -> None:
    pool = config(SpecMethod.NGRAM, 3, prefill_chunk=8, verification_budget=4, max_group_size=4)
    cell, _ = serve(resumed(LONG, 20), pool)
    assert [len(row.proposal) for lease in cell.leases for row in lease.rows][:3] == [5, 7, 6]


def test_a_pass_chooses_no_more_than_memory_was_planned_for() -> None:
    """Those whose turn it is not go on by a token a pass."""
    pool = config(prefill_chunk=8, max_group_size=4)
    cell = Cell(pool)
    cell.join(info())
    clients = [cell.add(resumed(replace(LONG, request_id=str(i)), 20)) for i in range(4)]
    cell.run()
    for client in clients:
        client.check_plain()
    chosen = [sum(row.num_choices for row in lease.rows) for lease in cell.leases]
    assert max(chosen) <= pool.max_choices == 16
    assert [row.num_choices for row in cell.leases[0].rows] == [6, 6, 3, 1]


def test_it_counts_as_a_catch_up() -> None:
    """Streams are held up by no more of it than by prompts."""
    cell = Cell(config(prefill_chunk=8, max_prefill_tokens=8, max_group_size=4))
    cell.join(info())
    clients = [cell.add(resumed(replace(LONG, request_id=str(i)), 20)) for i in range(4)]
    cell.run()
    for client in clients:
        client.check_plain()
    wide = [[row for row in lease.rows if row.num_choices > 1] for lease in cell.leases]
    assert max(map(len, wide)) == 1


def test_ids_that_no_such_request_can_have_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="resume has 9 token ids, max_tokens is 8"):
        request("a", max_tokens=8, resume=(1,) * 9)
    with pytest.raises(InvalidRequestError, match="id 4 at position 2 ends the answer, but 2"):
        request("a", stop_token_ids=(4,), resume=(1, 2, 4, 3, 3))
    request("a", stop_token_ids=(4,), resume=(1, 2, 4))
    cell = Cell(config())
    cell.join(info())
    with pytest.raises(InvalidRequestError, match=r"token id 5 is not in 0\.\.4"):
        cell.add(request("a", resume=(1, 5)))
    assert cell.pool.num_live == 0
