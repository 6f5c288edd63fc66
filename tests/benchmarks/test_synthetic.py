"""Synthetic pairs: recorded proposals of a chosen quality, and the same tokens with all of them."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import replay_k
from benchmarks.no_slowdown import Sweep, measure
from benchmarks.no_slowdown_cells import CONTROLLER, OFF, PLAIN, Bench, Cell, Run
from benchmarks.no_slowdown_report import cell_record, cells_table
from benchmarks.synthetic import Recording, lookups_from, record, synthetic_engine
from specdec_core import SamplingParams
from tests.decoding import answer_ids
from tests.fakes import TokenListModel

PROMPTS = [(number, 1, 2, 3) for number in range(12)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=120)
EVENTS = {"terms", "check", "learn", "observe"}
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=120)
SHORT = SamplingParams(temperature=0.0, max_tokens=60)


@functools.cache
def recorded(params: SamplingParams = GREEDY) -> Recording:
    return record(TokenListModel(), PROMPTS, params)


@pytest.mark.covering(1)
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("acceptance", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("has_draft", [False, True], ids=["lookup", "draft"])
def test_proposals_are_accepted_as_often_as_asked_and_change_no_token(
    params: SamplingParams, acceptance: float, has_draft: bool
) -> None:
    recording, target = recorded(params), TokenListModel()
    book = recording.book(target, acceptance)
    draft = TokenListModel(seed=9) if has_draft else None
    engine = synthetic_engine(target, draft, book, batch=4, num_draft_tokens=3)
    with lookups_from(book):
        answers = answer_ids(engine, recording.requests(12))
    assert [tuple(answer) for answer in answers.values()] == list(recording.answers)
    stats = engine.stats
    # Position j was tried where all before it were right, once the budget is far from its end.
    tried = [stats.drafted_per_position[0], *stats.accepted_per_position[:-1]]
    rate = sum(stats.accepted_per_position) / sum(tried)
    assert abs(rate - acceptance) < 0.05, "more than 3 standard deviations"
    assert (draft is None) or draft.num_passes > stats.num_rounds


def test_a_recording_is_read_again_for_equal_questions_alone(tmp_path: Path) -> None:
    cache = tmp_path / "recording.json"
    first = record(TokenListModel(), PROMPTS, GREEDY, cache, "a")
    other = TokenListModel(seed=5)
    assert record(other, PROMPTS, GREEDY, cache, "a") == first
    assert other.num_passes == 0
    assert record(other, PROMPTS, GREEDY, cache, "b") != first
    assert record(other, PROMPTS, SAMPLED, cache, "b") != record(other, PROMPTS, GREEDY, cache, "b")


def test_a_sweep_runs_every_contestant_in_turns_and_finds_no_other_token() -> None:
    bench = Bench(TokenListModel(), None, recorded(SHORT), (1, 3), 3)
    sweep = Sweep(
        batch_sizes=(1, 4),
        acceptances=(0.5,),
        fixed_ks=(1, 3),
        repeats=2,
        minutes=5.0,
        min_prompts=2,
    )
    small, large = measure(bench, sweep)
    assert (small["num_prompts"], large["num_prompts"]) == (2, 4)
    for found in (small, large):
        assert {name: len(runs) for name, runs in found["runs"].items()} == {
            **{PLAIN: 2, OFF: 2, "K=1": 2, "K=3": 2},
            CONTROLLER: 3,
        }
        assert found["num_different"] == 0
        drafted = {name: runs[0]["mean_k"] for name, runs in found["runs"].items()}
        assert drafted[PLAIN] == drafted[OFF] == 0.0
        assert 0.9 < drafted["K=1"] <= 1.0 < 2.5 < drafted["K=3"] <= 3.0
    assert cells_table([small, large]).row_count == 2


def test_a_trace_is_decided_again_and_a_changed_one_is_found_out(tmp_path: Path) -> None:
    bench = Bench(TokenListModel(), None, recorded(), (4,), 4, tmp_path)
    with bench.contest(Cell(4, 0.7, 12)) as contest:
        contest[CONTROLLER]()
    trace = tmp_path / "batch_4_acceptance_0.7.jsonl"
    records = [json.loads(line) for line in trace.read_text().splitlines()]
    assert {record["event"] for record in records} == {"policy", *EVENTS}
    outcome = CliRunner().invoke(replay_app(), [str(trace)])
    assert (outcome.exit_code, ", 0 of them different" in outcome.output) == (0, True)
    next(record for record in records if record["event"] == "check")["decided"][0][0] += 1
    trace.write_text("\n".join(map(json.dumps, records)))
    outcome = CliRunner().invoke(replay_app(), [str(trace)])
    assert (outcome.exit_code, ", 1 of them different" in outcome.output) == (1, True)


def replay_app() -> typer.Typer:
    app = typer.Typer()
    app.command()(replay_k.main)
    return app


def test_a_sweep_without_time_makes_one_turn_of_every_cell() -> None:
    bench = Bench(TokenListModel(), None, recorded(SHORT), (1,), 1)
    sweep = Sweep(
        batch_sizes=(1, 2), acceptances=(0.5,), fixed_ks=(1,), repeats=9, minutes=0.0, min_prompts=1
    )
    assert [len(found["runs"][PLAIN]) for found in measure(bench, sweep)] == [1, 1]


def test_ratios_are_taken_turn_by_turn_and_leave_the_controllers_first_run_out() -> None:
    def runs(*speeds: float) -> list[Run]:
        return [
            Run(
                tokens_per_second=speed,
                decode_tokens_per_second=2 * speed,
                num_passes=1,
                mean_k=0.0,
                num_different=0,
            )
            for speed in speeds
        ]

    contest = {
        PLAIN: runs(10, 100, 20),
        OFF: runs(5, 50, 10),
        "K=1": runs(8, 80, 16),
        CONTROLLER: runs(1, 9, 90, 18),
    }
    found = cell_record(Cell(1, 0.5, 1), contest)
    assert found["over_plain"] == found["over_best_fixed"] == pytest.approx(0.9)
    assert found["over_off"] == pytest.approx(1.8)
    assert found["best_fixed"] == PLAIN
    assert found["first_over_plain"] == 1 / 20
