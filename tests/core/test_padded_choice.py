"""Which rows EXSPEC stacks next, and who waits for whom in the padded algorithms."""

from __future__ import annotations

from dataclasses import replace

from specdec_core import Request, SamplingParams
from specdec_core.algorithms.live_sequence import LiveSequence, RequestQueue
from specdec_core.algorithms.padded.exspec_padded import choose_rows
from specdec_core.request import FinishReason


def request(length: int, max_tokens: int = 10) -> Request:
    params = SamplingParams(max_tokens=max_tokens)
    return Request(request_id="r", prompt_token_ids=(1,) * length, params=params)


def window(*lengths: int) -> list[LiveSequence]:
    return [LiveSequence(request(length), arrived_at=0.0) for length in lengths]


def chosen(sequences: list[LiveSequence], size: int) -> list[int]:
    return [sequences.index(sequence) for sequence in choose_rows(sequences, size)]


def test_rows_of_one_length_are_stacked_wherever_they_stand_in_the_window() -> None:
    assert chosen(window(5, 7, 6, 7, 9, 7), 3) == [1, 3, 5]


def test_of_several_full_lengths_the_one_with_the_oldest_row_is_stacked() -> None:
    assert chosen(window(4, 8, 6, 8, 6), 2) == [1, 3]


def test_without_a_full_length_the_first_rows_are_stacked() -> None:
    assert chosen(window(5, 7, 7, 9), 3) == [0, 1, 2]
    assert chosen(window(5, 7), 3) == [0, 1]
    assert chosen([], 3) == []


def test_requests_are_admitted_in_order_while_all_fit_into_one_rectangle() -> None:
    queue = RequestQueue(max_live_tokens=75)
    for length in (10, 10, 20, 10):
        queue.add(request(length), now=0.0)
    queue.admit(8, now=1.0)
    assert [len(s.ids) for s in queue.admitted] == [10, 10], "3 x 30 exceeds 75"
    queue.admitted[0].finish_reason = FinishReason.STOP
    queue.drop_finished()
    queue.admit(8, now=2.0)
    assert [len(s.ids) for s in queue.admitted] == [10, 20]
    assert [s.admitted_at for s in queue.admitted] == [1.0, 2.0]


def test_a_request_that_alone_exceeds_the_bound_is_admitted_alone() -> None:
    queue = RequestQueue(max_live_tokens=5)
    for _ in range(2):
        queue.add(request(10), now=0.0)
    queue.admit(8, now=0.0)
    assert len(queue.admitted) == 1


def test_a_request_whose_emitted_tokens_end_it_ends_at_once() -> None:
    queue = RequestQueue(max_live_tokens=100)
    resumed = replace(request(3), emitted_token_ids=(4, 2, 5), end_token_ids=frozenset({2}))
    queue.add(resumed, now=0.0)
    (event,) = queue.take_ended()
    assert (event.index, event.token_ids, event.finish_reason) == (2, (), FinishReason.STOP)
    assert not queue.has_work
