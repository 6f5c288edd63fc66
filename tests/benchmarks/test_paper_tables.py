"""The figures of the paper's tables, and the document that is written from them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.paper.algorithms import COMPARED, PLAIN
from benchmarks.paper.decoding import Decoded, in_turns
from benchmarks.paper.equivalence import Comparison, partial_match
from benchmarks.paper.grouping import GroupingOptions, Lengths, measure, prompt_lens
from benchmarks.paper.online import (
    Life,
    figures,
    percentile,
    poisson_arrivals,
    serve,
)
from benchmarks.paper.overhead import STAGES, alignment_share
from benchmarks.paper.records import RESULTS, Row, Run, load_runs, save_run
from benchmarks.paper.report import DOCUMENT, markdown_of, render
from benchmarks.paper.sweep import Budget, Cell, cells_by_batch
from benchmarks.paper.throughput import figures as throughput_figures
from benchmarks.paper.views import VIEWS
from benchmarks.paper.window import cells as window_cells
from benchmarks.paper.workload import answer_lens
from specdec_core import Request, SamplingParams, SchedulerConfig
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.engine import AlgorithmName, Engine
from tests.fakes import TokenListModel

EXSPEC = AlgorithmName.EXSPEC


def decoded(answers: Sequence[tuple[int, ...]], seconds: float = 1.0) -> Decoded:
    return Decoded(answers=tuple(answers), seconds=seconds, stats=AlgorithmStats(num_rounds=2))


def run_of(rows: list[Row], name: str = "pair") -> Run:
    return Run(name=name, commit="abc", machine={}, settings={"sample": 2}, rows=rows)


@pytest.mark.parametrize(
    ("expected", "got", "share"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 4), 1.0),
        ((1, 2, 3, 4), (1, 2, 9, 4), 0.5),
        ((1, 2, 3, 4), (1, 2, 3), 0.75),
        ((1, 2), (1, 2, 3), 1.0),
        ((1, 2), (9, 2), 0.0),
        ((), (), 1.0),
        ((), (1,), 0.0),
    ],
)
def test_a_partial_match_ends_at_the_first_difference(
    expected: tuple[int, ...], got: tuple[int, ...], share: float
) -> None:
    assert partial_match(expected, got) == share


def test_an_answer_that_is_longer_than_the_reference_is_not_equal() -> None:
    cell = Cell(EXSPEC, 4)
    compared = Comparison(decoded([(1, 2), (3, 4)])).figures(
        cell, {cell: [decoded([(1, 2, 7), (3, 4)])]}
    )
    assert compared["num_equal"] == 1
    assert compared["num_requests"] == 2


def test_the_share_of_alignment_is_that_of_all_stages() -> None:
    seconds = {"draft": 1.0, "verify": 2.0, "align": 1.0, "schedule": 0.0}
    assert alignment_share(seconds) == 0.25
    assert alignment_share({"verify": 2.0}) == 0.0
    assert alignment_share({}) == 0.0


def test_a_speed_is_compared_with_plain_decoding_of_the_same_turn() -> None:
    plain, ours = Cell(PLAIN, 4), Cell(EXSPEC, 4)
    tokens = [(1,) * 12]
    done = {
        plain: [decoded(tokens, 1.0), decoded(tokens, 10.0), decoded(tokens, 1.0)],
        ours: [decoded(tokens, 0.5), decoded(tokens, 4.0), decoded(tokens, 3.0)],
    }
    assert throughput_figures(ours, done)["over_plain"] == 2.0


def test_runs_take_turns() -> None:
    order: list[str] = []

    def run(name: str) -> Decoded:
        order.append(name)
        return decoded([(1,)])

    done = in_turns({"a": lambda: run("a"), "b": lambda: run("b")}, 3)
    assert order == ["a", "b"] * 3
    assert {key: len(runs) for key, runs in done.items()} == {"a": 3, "b": 3}


def test_a_budget_is_spent_at_its_end_and_not_before() -> None:
    times = iter([100.0, 109.9, 110.0])
    budget = Budget(10.0, lambda: next(times))
    assert not budget.is_spent
    assert budget.is_spent


def test_cells_that_are_compared_share_a_group() -> None:
    assert cells_by_batch((PLAIN, EXSPEC), (1, 4)) == [
        [Cell(PLAIN, 1), Cell(EXSPEC, 1)],
        [Cell(PLAIN, 4), Cell(EXSPEC, 4)],
    ]
    assert window_cells((EXSPEC,), (4,), (1, 8)) == [[Cell(EXSPEC, 4, 4), Cell(EXSPEC, 4, 32)]]


def test_answers_of_random_weights_have_seeded_lengths_within_bounds() -> None:
    lens = answer_lens(200, 40, seed=1)
    assert lens == answer_lens(200, 40, seed=1)
    assert lens != answer_lens(200, 40, seed=2)
    assert (min(lens), max(lens)) == (10, 40)


SMALL = GroupingOptions(num_prompts=12, max_tokens=12, num_draft_tokens=3, window=12)


@pytest.mark.parametrize("lengths", Lengths)
@pytest.mark.parametrize("algorithm", COMPARED)
def test_every_algorithm_emits_the_recorded_answers(
    algorithm: AlgorithmName, lengths: Lengths
) -> None:
    """`measure` itself asserts it; rounds and acceptance show that speculation was on."""
    row = measure(SMALL, algorithm, 3, lengths, 0.7)
    assert row["mean_acceptance_length"] > 1.5
    assert row["num_rounds"] < 12 * 12


def test_equal_prompts_that_accept_everything_stay_equal() -> None:
    options = replace(SMALL, num_prompts=4, window=4)
    row = measure(options, EXSPEC, 4, Lengths.EQUAL, 1.0)
    assert row["equal_length_share"] == 1.0


def test_lengths_are_as_asked() -> None:
    assert prompt_lens(SMALL, Lengths.EQUAL) == [16] * 12
    lens = prompt_lens(replace(SMALL, num_prompts=500), Lengths.RANDOM)
    assert (lens[0], lens[-1]) == (8, 32)
    assert lens == sorted(lens)
    unsorted = replace(SMALL, num_prompts=500, sort_by_length=False)
    assert prompt_lens(unsorted, Lengths.RANDOM) != lens


@pytest.mark.parametrize(("q", "value"), [(0, 1.0), (50, 2.5), (100, 4.0), (90, 3.7)])
def test_a_percentile_lies_between_the_nearest_ranks(q: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], q) == pytest.approx(value)


def test_arrivals_have_the_rate_that_was_asked_for() -> None:
    times = poisson_arrivals(4001, rate=5.0, seed=1)
    assert times[0] == 0.0
    assert times == sorted(times)
    assert abs(times[-1] / 4000 - 0.2) < 0.2 * 4 / 4000**0.5, "4 standard deviations"


def requests(count: int, max_tokens: int) -> list[Request]:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    return [
        Request(request_id=str(i), prompt_token_ids=(i + 1, 2), params=params) for i in range(count)
    ]


def plain_engine(clock: object) -> Engine:
    config = SchedulerConfig(max_group_size=1, window=1)
    return Engine(TokenListModel(), config=config, algorithm=PLAIN)


def test_virtual_time_counts_steps_and_jumps_over_idle_spells() -> None:
    """Plain decoding, one at a time, 3 steps of 1 s each; arrivals at 0, 1 and 100 s."""
    ticks = itertools.count(0, 1)
    lives = serve(plain_engine, requests(3, 3), [0.0, 1.0, 100.0], lambda: next(ticks))
    assert [life.heard_at[-1] for life in lives] == [3.0, 6.0, 103.0]
    assert [life.latency for life in lives] == [3.0, 5.0, 3.0]
    assert [life.num_tokens for life in lives] == [3, 3, 3]


def test_the_longest_silence_includes_the_wait_for_the_first_token() -> None:
    first = Life(arrived_at=1.0, heard_at=[5.0, 6.0])
    second = Life(arrived_at=1.0, heard_at=[2.0, 9.0])
    assert first.longest_silence == 4.0
    assert figures([first, second])["longest_silence_s"] == 7.0


def test_a_run_takes_the_place_of_the_older_one_of_its_name(tmp_path: Path) -> None:
    save_run(tmp_path, "window", run_of([{"x": 1}], "b"))
    save_run(tmp_path, "window", run_of([{"x": 2}], "a"))
    save_run(tmp_path, "window", run_of([{"x": 3}], "b"))
    assert [(run.name, run.rows) for run in load_runs(tmp_path, "window")] == [
        ("a", [{"x": 2}]),
        ("b", [{"x": 3}]),
    ]
    assert load_runs(tmp_path, "online") == []


def test_a_table_stands_the_paper_beside_ours_and_says_what_did_not_run() -> None:
    measured = {
        "algorithm": "eqspec",
        "batch_size": 4,
        "num_rounds": 10,
        "mean_acceptance_length": 2.5,
        "alignment_share": 0.1234,
        "alignment_share_range": [0.1, 0.15],
        "aligned_bytes": 25_000_000,
        "stacked_bytes": 0,
        "ms_per_round": dict(zip(STAGES, (1.0, 2.0, 0.5, 0.0, 0.25, 0.125), strict=True)),
    }
    skipped = {"algorithm": "exspec", "batch_size": 4, "not_run": "no time"}
    text = markdown_of("overhead", run_of([measured, skipped]))
    assert (
        "| 4 | 28 % | 12.3 % (10.0 to 15.0); 2.50 MB | - | - "
        "| exspec-padded: not asked for; exspec: no time |"
    ) in text
    assert "| 4 | `eqspec` | 1.00 | 2.00 | 0.50 | 0.00 | 0.25 | 0.12 | 0.00 | 10 | 2.50 |" in text


def test_a_reason_that_all_share_is_written_once() -> None:
    rows: list[Row] = [
        {"algorithm": name, "batch_size": 2, "not_run": "no GPU"} for name in COMPARED
    ]
    assert "| all: no GPU |" in markdown_of("online", run_of(rows))


def test_a_table_without_runs_names_its_command() -> None:
    text = render({table: [] for table in VIEWS})
    assert text.count("Not measured yet") == len(VIEWS)
    assert "python -m benchmarks.paper grouping" in text


def test_the_document_is_in_step_with_the_results() -> None:
    runs = {table: load_runs(RESULTS, table) for table in VIEWS}
    assert DOCUMENT.read_text() == render(runs), "run `python -m benchmarks.paper report`"
