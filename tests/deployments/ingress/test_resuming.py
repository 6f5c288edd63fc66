"""What an ingress submits again after a lost stream: what its client has, and who began it."""

from __future__ import annotations

from deployments.coordinator.streams import IngressOutbox
from deployments.ingress.open_requests import OpenRequest, OpenRequests
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.sampling_params import SamplingParams
from tests.deployments.outboxes import events_in, taken


def opened(was_sent: bool = True) -> OpenRequests:
    book = OpenRequests()
    params = SamplingParams(max_tokens=9)
    request = Request(request_id="a", prompt_token_ids=(1,), params=params)
    book.begin(OpenRequest(request, was_sent))
    return book


def taken_in(book: OpenRequests, event: TokenEvent) -> TokenEvent | None:
    entry = book.get(event.request_id)
    assert entry is not None
    return book.take(entry, event)


def told(index: int, *token_ids: int, pinned: str = "") -> TokenEvent:
    return TokenEvent("a", index, token_ids, pinned_fingerprint=pinned)


def test_a_resumed_request_names_the_targets_that_began_it_whoever_serves_by_now() -> None:
    """Only the tokens' own news can say that: what the pool has to offer may change before it
    is read."""
    book = opened()
    taken_in(book, told(0, 5, pinned="there"))
    taken_in(book, told(1, 6))
    assert [r.pinned_fingerprint for r in book.resumed()] == ["there"]
    assert [r.emitted_token_ids for r in book.resumed()] == [(5, 6)]


def test_news_that_is_merged_before_it_is_read_still_names_them() -> None:
    outbox = IngressOutbox()
    outbox.put(told(0, 5, pinned="there"))
    outbox.put(told(1, 6))
    assert events_in(taken(outbox)) == [(told(0, 5, 6, pinned="there"), None)]


def test_a_gap_is_asked_for_and_an_overlap_is_dropped() -> None:
    book = opened()
    assert taken_in(book, told(0, 5, 6)) == told(0, 5, 6)
    assert taken_in(book, told(3, 8)) is None
    assert [r.emitted_token_ids for r in book.resumed()] == [(5, 6)]
    assert taken_in(book, told(1, 6, 7)) == told(2, 7)
    assert book.num_divergences == 0


def test_other_tokens_than_before_are_counted_and_never_told() -> None:
    book = opened()
    taken_in(book, told(0, 5, 6))
    assert taken_in(book, told(1, 7, 8)) is None
    assert book.num_divergences == 1


def test_its_last_news_ends_a_request() -> None:
    book = opened()
    last = told(0, 5)._replace(finish_reason=FinishReason.STOP)
    assert taken_in(book, last) == last
    assert book.get("a") is None
    assert book.send_all() == []


def test_nobody_hears_of_a_request_that_has_ended() -> None:
    book = opened()
    entry = book.get("a")
    assert entry is not None
    assert book.end(entry)
    assert book.get("a") is None
    assert not book.end(entry)
    assert len(book) == 0


def test_what_is_released_goes_on_elsewhere_behind_what_was_told() -> None:
    """Log-probabilities of the prompt are told with the first token, by whoever chose it."""
    scores = (TokenLogprobs(-1.0, ()),)
    book = opened()
    assert taken_in(book, told(0, 5)._replace(prompt_logprobs=scores)) is not None
    released = book.release("a")
    assert released.was_sent
    assert book.get("a") is None
    elsewhere = OpenRequests()
    elsewhere.begin(OpenRequest(released.resumed(), was_sent=True))
    assert taken_in(elsewhere, told(1, 6)._replace(prompt_logprobs=scores)) == told(1, 6)
    assert elsewhere.resumed()[0].emitted_token_ids == (5, 6)


def test_what_no_stream_took_is_new_to_the_first_coordinator_that_comes() -> None:
    book = opened(was_sent=False)
    assert [was_sent for _, was_sent in book.send_all()] == [False]
    assert [was_sent for _, was_sent in book.send_all()] == [True]
    assert not opened(was_sent=False).release("a").was_sent


def test_a_request_that_has_ended_leaves_a_later_one_of_its_id_open() -> None:
    book, later = opened(), opened()
    ended, begun = book.release("a"), later.release("a")
    book.begin(begun)
    assert not book.end(ended)
    assert book.get("a") is begun
