"""What speculation did, from answers and from /metrics; and how answers' chunks are read."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.cli.bench.client import AnswerError, Chunk, Usage, read_chunk
from deployments.cli.bench.speculation import SpecCounts, counts_of_answer, counts_of_page

PAYLOAD = {
    "mean_acceptance_length": 2.5,
    "acceptance_histogram": [1, 0, 2, 1, 0],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 7,
    "num_draft_tokens": 16,
    "num_spec_tokens": 4,
}
PAGE = """
# HELP specdec_spec_decode_num_drafts_total Proposals that the target verified.
specdec_spec_decode_num_drafts_total{model_name="num_draft_tokens"} 4.0
specdec_spec_decode_num_draft_tokens_total{model_name="m"} 16.0
specdec_spec_decode_num_accepted_tokens_total{model_name="m"} 7.0
specdec_spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="0"} 3.0
specdec_spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="1"} 3.0
specdec_spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="2"} 1.0
specdec_spec_decode_num_drafts_created{model_name="m"} 1.7e+09
specdec_generation_tokens_total{model_name="m"} 9.0
"""
COUNTS = SpecCounts(
    num_drafts=4,
    num_draft_tokens=16,
    num_accepted_tokens=7,
    accepted_per_position=(3, 3, 1, 0),
)


def test_an_answers_histogram_tells_how_often_each_position_was_accepted() -> None:
    counts = counts_of_answer(PAYLOAD)
    assert counts == COUNTS
    assert sum(counts.accepted_per_position) == counts.num_accepted_tokens


def test_figures_have_vllms_names_and_units() -> None:
    assert COUNTS.figures() == {
        "spec_decode_acceptance_rate": 43.75,
        "spec_decode_acceptance_length": 2.75,
        "spec_decode_num_drafts": 4,
        "spec_decode_draft_tokens": 16,
        "spec_decode_accepted_tokens": 7,
        "spec_decode_per_position_acceptance_rates": [0.75, 0.75, 0.25, 0.0],
    }


def test_without_drafts_there_are_no_figures() -> None:
    assert SpecCounts().figures() == {}
    assert SpecCounts(num_drafts=3).figures() == {}


def test_counts_add_up_and_differ_whatever_their_lengths() -> None:
    longer = SpecCounts(num_drafts=1, accepted_per_position=(1, 1, 1, 1, 1))
    both = COUNTS + longer
    assert both.accepted_per_position == (4, 4, 2, 1, 1)
    assert (both - longer).accepted_per_position == (3, 3, 1, 0, 0)
    assert (both - COUNTS).num_drafts == 1


@pytest.mark.parametrize("names", ["specdec_", "vllm:"])
def test_a_page_is_read_by_its_counters(names: str) -> None:
    found = counts_of_page(PAGE.replace("specdec_", names))
    assert found == SpecCounts(
        num_drafts=4, num_draft_tokens=16, num_accepted_tokens=7, accepted_per_position=(3, 3, 1)
    )


def test_a_page_with_both_names_counts_once_and_engines_are_added() -> None:
    twice = PAGE + PAGE.replace("specdec_", "vllm:")
    assert counts_of_page(twice) == counts_of_page(PAGE)
    engines = PAGE.replace("specdec_", "vllm:").replace('"m"', '"m",engine="0"')
    both = counts_of_page(engines + engines.replace('engine="0"', 'engine="1"'))
    assert both is not None
    assert (both.num_draft_tokens, both.accepted_per_position) == (32, (6, 6, 2))


def test_a_page_without_speculation_has_none() -> None:
    assert counts_of_page("specdec_generation_tokens_total 9.0\n# spec_decode\n") is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"choices": [{"text": "abc"}]}, Chunk(weight=3)),
        ({"choices": [{"text": "", "finish_reason": "stop"}]}, Chunk()),
        ({"choices": [{"text": "é", "token_ids": [1, 2]}]}, Chunk(weight=2)),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, Chunk()),
        ({"choices": [{"delta": {"content": "ab"}}], "usage": None}, Chunk(weight=2)),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, Chunk(weight=2)),
        ({"choices": [{"delta": {"tool_calls": [{}]}}]}, Chunk(weight=2)),
        (
            {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 6}},
            Chunk(is_output=False, usage=Usage(4, 6)),
        ),
        (
            {"choices": [], "metrics": {"speculative_decoding": PAYLOAD}},
            Chunk(is_output=False, speculation=COUNTS),
        ),
        ({"choices": [], "metrics": None}, Chunk(is_output=False)),
    ],
)
def test_chunks_over_http(data: dict[str, Any], expected: Chunk) -> None:
    assert read_chunk(data) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"error": {"message": "the queue is full", "code": 429}}, "the queue is full"),
        ({"error": "bad"}, "bad"),
        ({"choices": [{"text": "", "finish_reason": "abort"}]}, "ended the answer early"),
    ],
)
def test_a_chunk_may_end_an_answer_in_failure(data: dict[str, Any], message: str) -> None:
    with pytest.raises(AnswerError, match=message):
        read_chunk(data)
