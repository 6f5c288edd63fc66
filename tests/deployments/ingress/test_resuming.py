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


def told(index: int, *token_ids: int, pinned: str = "") -> TokenEvent:
    return TokenEvent("a", index, token_ids, pinned_fingerprint=pinned)


def test_a_resumed_request_names_the_targets_that_began_it_whoever_serves_by_now() -> None:
    """Only the tokens' own news can say that: what the pool has to offer may change before it
    is read."""
    book = opened()
    book.take(told(0, 5, pinned="there"))
    book.take(told(1, 6))
    assert [r.pinned_fingerprint for r in book.resumed()] == ["there"]
    assert [r.emitted_token_ids for r in book.resumed()] == [(5, 6)]


def test_news_that_is_merged_before_it_is_read_still_names_them() -> None:
    outbox = IngressOutbox()
    outbox.put(told(0, 5, pinned="there"))
    outbox.put(told(1, 6))
    assert events_in(taken(outbox)) == [(told(0, 5, 6, pinned="there"), None)]


def test_a_gap_is_asked_for_and_an_overlap_is_dropped() -> None:
    book = opened()
    assert book.take(told(0, 5, 6)) == told(0, 5, 6)
    asked = book.take(told(3, 8))
    assert isinstance(asked, OpenRequest)
    assert asked.resumed().emitted_token_ids == (5, 6)
    assert book.take(told(1, 6, 7)) == told(2, 7)
    assert book.num_divergences == 0


def test_other_tokens_than_before_are_counted_and_never_told() -> None:
    book = opened()
    book.take(told(0, 5, 6))
    assert isinstance(book.take(told(1, 7, 8)), OpenRequest)
    assert book.num_divergences == 1


def test_its_last_news_ends_a_request() -> None:
    book = opened()
    last = told(0, 5)._replace(finish_reason=FinishReason.STOP)
    assert book.take(last) == last
    assert "a" not in book
    assert book.send_all() == []


def test_nobody_hears_of_a_request_that_has_ended() -> None:
    book = opened()
    assert book.end("a")
    assert book.take(told(0, 5)) is None
    assert not book.end("a")
    assert len(book) == 0


def test_what_is_released_goes_on_elsewhere_behind_what_was_told() -> None:
    """Log-probabilities of the prompt are told with the first token, by whoever chose it."""
    scores = (TokenLogprobs(-1.0, ()),)
    book = opened()
    assert book.take(told(0, 5)._replace(prompt_logprobs=scores)) is not None
    released, was_sent = book.release("a")
    assert was_sent
    assert "a" not in book
    elsewhere = OpenRequests()
    elsewhere.begin(OpenRequest(released, was_sent))
    assert elsewhere.take(told(1, 6)._replace(prompt_logprobs=scores)) == told(1, 6)
    assert elsewhere.resumed()[0].emitted_token_ids == (5, 6)


def test_what_no_stream_took_is_new_to_the_first_coordinator_that_comes() -> None:
    book = opened(was_sent=False)
    assert [was_sent for _, was_sent in book.send_all()] == [False]
    assert [was_sent for _, was_sent in book.send_all()] == [True]
    assert opened(was_sent=False).release("a")[1] is False
