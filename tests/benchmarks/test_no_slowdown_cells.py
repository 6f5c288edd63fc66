"""A contestant of the sweep pays for its prompts in every run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from benchmarks.no_slowdown_cells import CONTROLLER, Bench, Cell
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
    bench = Bench(target, None, record(target, PROMPTS, params), (1,))
    monkeypatch.setattr(Engine, "generate", watched)
    with bench.contest(Cell(batch=2, acceptance=0.5, num_prompts=4)) as contest:
        runs = [contest[CONTROLLER]() for _ in range(2)]
    assert [run.num_different for run in runs] == [0, 0]
    assert [len(of_run) for of_run in salts] == [1, 1]
    assert salts[0] != salts[1]
