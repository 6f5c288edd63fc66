"""Cells have names, and devices the pass times that were measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.host_time.answers import UNKNOWN, AnswerScript, lookups_from, random_texts
from benchmarks.host_time.cells import ALL, SUBSETS, Cell, DeviceKind, Method, chosen, times_of
from benchmarks.host_time.check import EXPECTED, comparison, recorded_round_ms
from benchmarks.host_time.report import Figures
from specdec_core.config import SpeculationConfig
from specdec_core.speculation.registry import DRAFTERS


def test_all_cells_have_names_of_their_own() -> None:
    names = [cell.name for cell in ALL]
    assert len(set(names)) == len(names) == 3 * 5 * 4
    assert set(EXPECTED) == {cell.name for cell in SUBSETS["check"]}
    assert all(set(subset) <= set(ALL) for subset in SUBSETS.values())


def test_cells_are_chosen_once_by_subset_and_name() -> None:
    assert chosen(["check", "h100/8/plain", "none/1/draft"]) == (
        *SUBSETS["check"],
        Cell(DeviceKind.NONE, 1, Method.DRAFT),
    )


@pytest.mark.parametrize("name", ["h100/7/plain", "defaults", ""])
def test_an_unknown_cell_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'.*default, check, all.*128.*ngram-0.7"):
        chosen([name])


def test_device_times_are_those_measured() -> None:
    h100 = times_of(DeviceKind.H100)
    assert h100.is_async
    assert h100.target(64, 1) == pytest.approx(8.9e-3, abs=1e-4)
    assert h100.target(128, 5) == pytest.approx(20.0e-3)
    assert h100.scaled(0.5).draft_step(8, 1) == pytest.approx(0.86e-3)
    cpu = times_of(DeviceKind.CPU)
    assert not cpu.is_async
    assert cpu.target(32, 1) > 4 * cpu.target(1, 1) > 0
    assert times_of(DeviceKind.NONE).target(128, 9) == 0.0


def test_a_script_is_right_with_its_probability() -> None:
    (text,) = random_texts(1, 4000, vocab_size=50)
    script = AnswerScript([text[:100]], [text[100:]], vocab_size=50, probability=0.7)
    assert script.begin(text[:10]) == 0
    assert script.begin((0,) * 10) == UNKNOWN
    proposed = script.following(0, num_ids=3998, count=3899)
    right = sum(a == b for a, b in zip(proposed, text[100:3999], strict=True))
    assert right / len(proposed) == pytest.approx(0.7, abs=0.03)
    assert list(script.following(UNKNOWN, 20, 3)) == [0, 0, 0]


def test_a_scripted_lookup_searches_and_proposes_the_script() -> None:
    texts = random_texts(2, 60, vocab_size=50)
    script = AnswerScript([t[:40] for t in texts], [t[40:] for t in texts], vocab_size=50)
    ids = list(texts[1][:45])
    with lookups_from(script):
        drafter: Any = DRAFTERS["ngram"](SpeculationConfig())
        index = drafter.begin(SimpleNamespace(ids=ids))
        assert index.propose(4) == texts[1][45:49]
        assert index.match_len > 1
        ids += texts[1][45:47]
        assert index.propose(2) == texts[1][47:49]
    assert len(index._links) == 47, "it has searched"


def test_a_slower_host_makes_known_times_shorter_as_well() -> None:
    once, half = times_of(DeviceKind.H100), times_of(DeviceKind.H100).scaled(0.5)
    assert [2 * entry[2] for entry in half.draft_timed] == [entry[2] for entry in once.draft_timed]
    assert half.target_timed[0][:2] == (1, 1)
    assert not times_of(DeviceKind.CPU).target_timed


def figures(cell: str, rows: int, tokens_per_s: float, all_rounds: float) -> Figures:
    numbers = dict.fromkeys(
        (
            "round_ms",
            "device_ms",
            "critical_ms",
            "cpu_ms",
            "tokens_per_row",
            "mean_k",
            "parts_over_round",
            "parts_over_cpu",
            "clocked_over_unclocked",
        ),
        1.0,
    )
    return Figures(
        cell=cell,
        rows=rows,
        tokens_per_s=tokens_per_s,
        functions={},
        all_rounds=all_rounds,
        num_rounds=1,
        critical={},
        busy={},
        **numbers,
    )


def test_rounds_are_compared_by_the_rule_of_the_recorded_file() -> None:
    """Its line `64 exspec, draft_model 2 5964 ... rounds 54 ms 19.08`."""
    measured = figures("h100/64/draft", 64, tokens_per_s=5964, all_rounds=54)
    assert recorded_round_ms(measured, answer_len=96) == pytest.approx(19.08, abs=0.005)
    slow = figures("h100/8/plain", 8, tokens_per_s=900, all_rounds=96)
    other = figures("h100/32/plain", 32, tokens_per_s=900, all_rounds=96)
    lines = comparison([measured, slow, other], answer_len=96)
    assert [line.split()[-1] for line in lines] == ["agrees", "MISSES"]
