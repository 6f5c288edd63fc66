"""The audit's books: which requests are replayed, how, and what counts as a difference."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from deployments.coordinator.audit import Auditor, Divergence, Origin, is_sampled
from specdec_core.config import Numerics
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.sampling_params import SamplingParams
from tests.deployments.observed import LEFT, end_of, live

EXACT = Origin(Numerics.EXACT, "here")
FAST = Origin(Numerics.FAST, "here")


class Books(Auditor):
    """An auditor of every request, which is told the present targets with each event."""

    def __init__(self, **bounds: int) -> None:
        numbers = count()
        super().__init__(1.0, lambda: self.here, new_id=lambda: f"replay-{next(numbers)}", **bounds)
        self.here: Origin | None = None

    def watch(self, request: Request) -> None:
        self.begin(live(request))

    def hear(self, event: TokenEvent, here: Origin | None) -> None:
        self.here = here
        request = live(asked(event.request_id))
        self.event(request, event, 0.0)
        if event.finish_reason is not None:
            self.end(request, end_of(event))


def asked(request_id: str = "a") -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=(1, 2),
        params=SamplingParams(max_tokens=5, temperature=0.8, seed=7, num_logprobs=2),
        end_token_ids=frozenset({9}),
        num_draft_tokens=3,
        priority=-2,
    )


def event(
    request_id: str, *token_ids: int, index: int = 0, reason: FinishReason | None = None
) -> TokenEvent:
    return TokenEvent(request_id=request_id, index=index, token_ids=token_ids, finish_reason=reason)


def last(
    request_id: str, *token_ids: int, index: int, reason: FinishReason, pinned: str = "here"
) -> TokenEvent:
    end = event(request_id, *token_ids, index=index, reason=reason)
    return end._replace(pinned_fingerprint=pinned)


def finished(books: Books, request_id: str = "a", origin: Origin | None = EXACT) -> None:
    books.watch(asked(request_id))
    books.hear(event(request_id, 4, 5), origin)
    pinned = "" if origin is FAST else "here"
    end = last(request_id, 6, index=2, reason=FinishReason.LENGTH, pinned=pinned)
    books.hear(end, origin)


def test_a_share_of_the_ids_is_sampled_always_the_same_ones() -> None:
    ids = [f"request-{number}" for number in range(4000)]
    sampled = {name for name in ids if is_sampled(name, 0.25)}
    assert 900 < len(sampled) < 1100
    assert sampled == {name for name in ids if is_sampled(name, 0.25)}
    assert sampled > {name for name in ids if is_sampled(name, 0.1)}
    assert not any(is_sampled(name, 0.0) for name in ids)
    assert all(is_sampled(name, 1.0) for name in ids)


def test_a_replay_is_the_request_without_speculation_under_another_id() -> None:
    books = Books()
    finished(books)
    params = replace(asked().params, num_logprobs=None)
    assert books.next_replay() == replace(
        asked(),
        request_id="replay-0",
        params=params,
        speculation_enabled=False,
        num_draft_tokens=None,
        priority=0,
        cache_salt="replay-0",
        is_background=True,
        pinned_fingerprint="here",
    )


def test_in_fast_numerics_any_target_may_replay() -> None:
    books = Books()
    finished(books, origin=FAST)
    replay = books.next_replay()
    assert replay is not None
    assert replay.pinned_fingerprint == ""


def test_equal_tokens_are_counted_as_audited() -> None:
    books = Books()
    finished(books)
    books.next_replay()
    for place, token_id in enumerate((4, 5)):
        assert books.compare(event("replay-0", token_id, index=place)) is None
        assert books.is_replay("replay-0")
    assert books.compare(event("replay-0", 6, index=2, reason=FinishReason.LENGTH)) is None
    assert not books.is_replay("replay-0")
    assert books.counts.audited == {Numerics.EXACT: 1}
    assert books.counts.diverged.total() == books.counts.num_skipped == books.num_pending == 0


@pytest.mark.parametrize("origin", [EXACT, FAST])
def test_the_first_difference_is_named_and_ends_the_replay(origin: Origin) -> None:
    books = Books()
    finished(books, origin=origin)
    books.next_replay()
    books.compare(event("replay-0", 4))
    assert books.compare(event("replay-0", 8, 3, index=1)) == Divergence(
        request_id="a", index=1, emitted_id=5, replayed_id=8, origin=origin
    )
    assert not books.is_replay("replay-0")
    assert books.counts.audited == books.counts.diverged == {origin.numerics: 1}


def test_a_replay_that_ends_too_early_is_a_difference() -> None:
    books = Books()
    finished(books)
    books.next_replay()
    found = books.compare(event("replay-0", 4, 5, reason=FinishReason.STOP))
    assert found is not None
    assert (found.index, found.emitted_id, found.replayed_id) == (2, 6, None)


def test_of_an_aborted_request_what_was_emitted_is_compared() -> None:
    """A stop string ends a request so: the pool is told to abort it."""
    books = Books()
    books.watch(asked())
    books.hear(event("a", 4, 5), EXACT)
    books.hear(last("a", index=2, reason=FinishReason.ABORT), EXACT)
    books.next_replay()
    assert books.compare(event("replay-0", 4, 5, 6)) is None
    assert not books.is_replay("replay-0")
    assert books.counts.audited.total() == 1


def test_what_an_earlier_attempt_emitted_is_compared_too() -> None:
    books = Books()
    books.watch(replace(asked(), emitted_token_ids=(4, 5)))
    books.hear(last("a", 6, index=2, reason=FinishReason.LENGTH), EXACT)
    replay = books.next_replay()
    assert replay is not None
    assert replay.emitted_token_ids == ()
    found = books.compare(event("replay-0", 3))
    assert found is not None
    assert (found.index, found.emitted_id) == (0, 4)


def test_what_failed_or_was_left_or_was_never_sampled_is_not_replayed() -> None:
    books = Books()
    books.watch(asked("failed"))
    books.hear(event("failed", 1, reason=FinishReason.ERROR), EXACT)
    books.watch(asked("empty"))
    books.hear(event("empty", reason=FinishReason.ABORT), EXACT)
    books.watch(asked("left"))
    books.end(live(asked("left")), LEFT)
    books.hear(event("left", 1, reason=FinishReason.LENGTH), EXACT)
    books.hear(event("unknown", 1, reason=FinishReason.LENGTH), EXACT)
    assert books.next_replay() is None
    assert books.counts.num_skipped == 0


def test_replays_are_bounded_and_what_is_beyond_is_counted() -> None:
    books = Books(max_running=2, max_waiting=3)
    for number in range(5):
        finished(books, f"r{number}")
    assert books.counts.num_skipped == 2
    assert [books.next_replay() is not None for _ in range(3)] == [True, True, False]
    assert books.num_pending == 3
    books.skip("replay-1")
    assert books.next_replay() is not None
    assert books.counts.num_skipped == 3


def test_a_replay_that_fails_is_skipped_not_a_difference() -> None:
    books = Books()
    finished(books)
    books.next_replay()
    assert books.compare(event("replay-0", 4, reason=FinishReason.ERROR)) is None
    assert not books.is_replay("replay-0")
    assert (books.counts.audited.total(), books.counts.num_skipped) == (0, 1)


def test_without_a_target_there_is_nothing_to_hold_a_request_to() -> None:
    books = Books()
    finished(books, origin=None)
    assert books.next_replay() is None
    assert books.counts.num_skipped == 1


@pytest.mark.parametrize(("pinned", "num_pending"), [("here", 1), ("", 0)])
def test_the_news_says_who_chose_the_tokens_not_who_is_there_by_then(
    pinned: str, num_pending: int
) -> None:
    """Tokens of no exact target cannot be held to those of one."""
    books = Books()
    books.watch(asked())
    there = Origin(Numerics.EXACT, "there")
    books.hear(last("a", 4, index=0, reason=FinishReason.STOP, pinned=pinned), there)
    replay = books.next_replay()
    assert (replay.pinned_fingerprint if replay else "") == pinned
    assert books.num_pending == num_pending
    assert books.counts.num_skipped == 1 - num_pending


def test_dropping_names_the_replays_that_have_begun() -> None:
    books = Books(max_running=1)
    finished(books, "a")
    finished(books, "b")
    books.next_replay()
    assert books.drop() == ["replay-0"]
    assert (books.num_pending, books.counts.num_skipped) == (0, 2)
