"""First differences: in the ids, in the end, in the log-probabilities."""

from __future__ import annotations

import math

import pytest

from deployments.cli.verify.compare import Answer, first_difference, logprob_change
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, TokenEvent

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def answer(*ids: int, end: FinishReason = LENGTH, logprob: float = -0.5) -> Answer:
    return Answer(
        token_ids=list(ids),
        logprobs=[TokenLogprobs(logprob, ((i, logprob), (90, -math.inf))) for i in ids],
        finish_reason=end,
    )


def test_equal_ids_with_an_equal_end_do_not_differ() -> None:
    assert first_difference(0, answer(1, 2, 3), answer(1, 2, 3)) is None
    assert first_difference(0, answer(), answer()) is None


@pytest.mark.parametrize(
    ("got", "position", "ids"),
    [
        (answer(1, 9, 3), 1, (2, 9)),
        (answer(9, 9, 9), 0, (1, 9)),
        (answer(1, 2), 2, (3, None)),
        (answer(1, 2, 3, 4), 3, (None, 4)),
        (answer(), 0, (1, None)),
        (answer(1, 2, 3, end=STOP), 3, (None, None)),
    ],
)
def test_the_first_difference_is_the_one_reported(
    got: Answer, position: int, ids: tuple[int | None, int | None]
) -> None:
    difference = first_difference(7, answer(1, 2, 3), got)
    assert difference is not None
    assert (difference.prompt, difference.position) == (7, position)
    assert (difference.expected, difference.got) == ids
    assert difference.reasons == (LENGTH, got.finish_reason)


def test_an_answer_gathers_its_events() -> None:
    gathered = Answer()
    gathered.take(TokenEvent(request_id="0", index=0, token_ids=(1, 2)))
    last = TokenEvent(request_id="0", index=2, token_ids=(3,), finish_reason=STOP)
    gathered.take(last)
    assert gathered.token_ids == [1, 2, 3]
    assert gathered.finish_reason is STOP


def test_one_changed_bit_of_a_logprob_is_a_difference() -> None:
    same, other = answer(1, 2), answer(1, 2, logprob=math.nextafter(-0.5, 0))
    change = logprob_change([(same, answer(1, 2)), (same, other)])
    assert (change.num_answers, change.num_different, change.num_missing) == (2, 1, 0)
    assert 0 < change.largest < 1e-15


def test_answers_with_other_ids_are_left_out() -> None:
    change = logprob_change([(answer(1, 2), answer(1, 3, logprob=-9))])
    assert change.num_answers == 0
    assert change.largest == 0


def test_missing_logprobs_are_counted() -> None:
    bare = Answer(token_ids=[1, 2], finish_reason=LENGTH)
    assert logprob_change([(bare, bare), (answer(1), answer(1))]).num_missing == 1
