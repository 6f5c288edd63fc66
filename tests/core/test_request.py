"""Where a request ends, and which requests are refused."""

import math
from typing import Any

import pytest

from specdec_core import FinishReason, Request, SamplingParams
from specdec_core.errors import InvalidRequestError
from specdec_core.request import RequestStats, cut_at_stop


def test_tokens_behind_an_accepted_stop_id_are_dropped() -> None:
    assert cut_at_stop((4, 2, 9), frozenset({2}), 10) == ((4, 2), FinishReason.STOP)


def test_several_stop_ids_are_all_honoured() -> None:
    assert cut_at_stop((4, 7, 2), frozenset({2, 7}), 10) == ((4, 7), FinishReason.STOP)


def test_the_budget_cuts_a_round_that_commits_more() -> None:
    assert cut_at_stop((4, 5, 6), frozenset({9}), 2) == ((4, 5), FinishReason.LENGTH)


def test_a_stop_id_at_the_budget_counts_as_a_stop() -> None:
    assert cut_at_stop((4, 9), frozenset({9}), 2) == ((4, 9), FinishReason.STOP)


def test_a_stop_id_behind_the_budget_does_not_count() -> None:
    assert cut_at_stop((4, 5, 9), frozenset({9}), 2) == ((4, 5), FinishReason.LENGTH)


def test_a_round_that_just_uses_up_the_budget_ends_the_request() -> None:
    assert cut_at_stop((4, 5), frozenset({9}), 2) == ((4, 5), FinishReason.LENGTH)


def test_the_request_goes_on_below_its_budget() -> None:
    assert cut_at_stop((4, 5), frozenset(), 3) == ((4, 5), None)


def test_all_end_ids_of_the_model_and_of_the_request_end_it() -> None:
    request = Request(
        request_id="a",
        prompt_token_ids=(1,),
        params=SamplingParams(stop_token_ids=(7, 8)),
        end_token_ids=frozenset({2, 3}),
    )
    assert request.stop_ids == {2, 3, 7, 8}


def test_ignore_eos_drops_the_models_ids_but_not_the_requests() -> None:
    params = SamplingParams(ignore_eos=True, stop_token_ids=(7,))
    request = Request(
        request_id="a", prompt_token_ids=(1,), params=params, end_token_ids=frozenset({2})
    )
    assert request.stop_ids == {7}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 2.0),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.5),
        ("top_k", -2),
        ("seed", -1),
        ("seed", 2**63),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("stop_token_ids", (-1,)),
    ],
)
def test_a_bad_parameter_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=field):
        SamplingParams(**{field: value})  # type: ignore[arg-type]


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="prompt is empty"):
        Request(request_id="a", prompt_token_ids=(), params=SamplingParams())


def test_acceptance_length_counts_the_next_token() -> None:
    stats = RequestStats(num_rounds=9, num_accepted=6, steps=((2, 0), (3, 2), (2, 2), (2, 2)))
    assert stats.num_proposed_rounds == 4
    assert stats.acceptance_histogram == (1, 0, 3)
    assert stats.mean_acceptance_length == 2.5


@pytest.mark.parametrize(
    "bans", [{"bad_words": ((7,), (8,))}, {"min_tokens": 1, "stop_token_ids": (7, 8)}]
)
def test_rules_that_leave_no_token_are_refused(bans: dict[str, Any]) -> None:
    def asks(*allowed: int) -> Request:
        params = SamplingParams(allowed_token_ids=allowed, **bans)
        return Request(request_id="a", prompt_token_ids=(1,), params=params)

    with pytest.raises(InvalidRequestError, match=r"ban every one of \[7, 8\]"):
        asks(8, 7)
    assert asks(8, 7, 9).params.allowed_token_ids == (8, 7, 9)
