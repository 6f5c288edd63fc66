"""A contestant of the sweep pays for its prompts in every run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from benchmarks.no_slowdown import Sweep, measure
from benchmarks.no_slowdown_cells import CONTROLLER, OFF, PLAIN, Bench, Cell, decode_rate
from benchmarks.synthetic import record
from specdec_core import Engine, Request, SamplingParams, TokenEvent
from tests.fakes import TokenListModel

PROMPTS = [(number, 1, 2, 3) for number in range(4)]


def test_no_run_finds_what_an_earlier_one_has_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain decoding keeps no prefixes: who does would gain half of a prompt by it."""
    salts: list[set[str]] = []
    generate = Engine.generate

    def watched(engine: Engine, requests: Iterable[Request]) -> Iterator[TokenEvent]:
        asked = list(requests)
        salts.append({request.cache_salt for request in asked})
        return generate(engine, asked)

    target = TokenListModel()
    params = SamplingParams(temperature=0.0, max_tokens=8)
    bench = Bench(target, None, record(target, PROMPTS, params), (1,), 1)
    monkeypatch.setattr(Engine, "generate", watched)
    with bench.contest(Cell(batch=2, acceptance=0.5, num_prompts=4)) as contest:
        runs = [contest[CONTROLLER]() for _ in range(2)]
    assert [run.num_different for run in runs] == [0, 0]
    assert [len(of_run) for of_run in salts] == [1, 1]
    assert salts[0] != salts[1]


def test_decoding_counts_from_the_first_piece_of_each_answer() -> None:
    """3 tokens in 2 s and 1 in 1 s; an answer that comes at once has no part."""
    answers = [[(1.0, 1), (2.0, 2), (3.0, 1)], [(5.0, 4), (6.0, 1)], [(9.0, 8)]]
    assert decode_rate(answers) == pytest.approx(4 / 3)
    assert decode_rate([[(9.0, 8)]]) == 0.0


def test_without_an_acceptance_prompt_lookup_makes_the_proposals_itself() -> None:
    """Prompts that repeat themselves, through to a record that counts from the first token."""
    target = TokenListModel()
    params = SamplingParams(temperature=0.0, max_tokens=8)
    prompts = [(number, *[1, 2, 3, 4] * 4) for number in range(2)]
    bench = Bench(target, None, record(target, prompts, params), (2,), 3)
    sweep = Sweep(
        batch_sizes=(2,), acceptances=(None,), fixed_ks=(2,), repeats=1, minutes=1.0, min_prompts=1
    )
    (found,) = measure(bench, sweep)
    assert (found["acceptance"], found["figure"]) == (None, "decode_tokens_per_second")
    assert found["num_different"] == 0
    (off,), (fixed,) = found["runs"][OFF], found["runs"]["K=2"]
    assert (off["mean_k"], fixed["mean_k"] > 0) == (0.0, True)
    speeds = {name: runs[-1]["decode_tokens_per_second"] for name, runs in found["runs"].items()}
    assert found["tokens_per_second"] == speeds
    assert found["over_off"] == pytest.approx(speeds[CONTROLLER] / speeds[OFF])
    assert found["over_plain"] == pytest.approx(speeds[CONTROLLER] / speeds[PLAIN])
