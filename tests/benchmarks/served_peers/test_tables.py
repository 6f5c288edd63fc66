"""Every acceptance figure stands next to its goal, in words that stand alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.served_peers.goals import acceptance
from benchmarks.served_peers.plot import plot
from benchmarks.served_peers.readings import OFF, ON, Part
from benchmarks.served_peers.report import markdown, sheets
from tests.benchmarks.served_peers.test_pairing import reading

GOAL = ">= 0.98, interval >= 0.95"
SPEEDS = {"specdec": 150, "engine": 200, "vllm": 100, "llama-bf16": 120, "llama-bf16-ngram": 130}


def found(*more: dict[str, Any]) -> dict[str, Any]:
    cells = [
        reading(engine, number, speed, streams=streams)
        for number in (0, 1)
        for engine, speed in SPEEDS.items()
        for streams in (8, 32)
    ]
    for each in cells:
        if each["engine"] == "engine":
            each["ttft_ms"] = each["gap_ms"] = {}
    starts = [{"engine": "specdec", "round": 0, "ready_s": 20.0, "command": [], "variables": {}}]
    return {
        "settings": {
            "site": {"model": "smollm2-135m"},
            "max_tokens": 128,
            "rounds": 2,
            "first_requests": 20,
            "prompt_tokens": {"short": 46.0},
        },
        "machine": {"cpu": "a processor", "capability": "AVX2", "cores": 2},
        "starts": starts,
        "readings": [*cells, *more],
        "not_run": [],
    }


def paired_readings(on: float, part: Part = Part.PAIRS) -> list[dict[str, Any]]:
    return [
        reading("specdec", number, speed, part=part, pair=number, speculation=side)
        for number in range(10)
        for side, speed in ((ON, on + 0.1 * number), (OFF, 100))
    ]


def lines(*more: dict[str, Any]) -> dict[str, tuple[str, bool | None]]:
    return {figure.what: (figure.goal, figure.is_met) for figure in acceptance(found(*more))}


def test_serve_over_the_engine_has_a_goal_for_each_number_of_streams() -> None:
    told = lines()
    assert told["serve / plain engine, tokens/s, short prompts, 8 streams"] == (">= 0.75", True)
    assert told["serve / plain engine, tokens/s, short prompts, 32 streams"] == (">= 0.72", True)


def test_a_peer_is_compared_by_the_fastest_of_its_modes() -> None:
    told = lines()
    assert told["serve / llama-bf16-ngram, tokens/s, short prompts, 8 streams"] == (
        ">= 1.2 (aim 1.3)",
        False,
    ), "150 over 130"
    assert told["serve / vllm, tokens/s, short prompts, 8 streams"] == (">= 1.3 (aim 1.4)", True)
    assert told["serve / llama-bf16-ngram, TTFT p50, short prompts, 8 streams"] == ("<= 1", True)


def test_speculation_meets_its_goal_only_where_the_whole_interval_does() -> None:
    what = "speculation on / off, 8 streams, temperature 0"
    assert lines(*paired_readings(98))[what] == (GOAL, True)
    assert lines(*paired_readings(96.5))[what] == (GOAL, False)
    for when in ("all streams busy", "after the first token"):
        assert lines(*paired_readings(98))[f"{what}, {when}"] == (GOAL, True)
    first = "speculation on / off, first 20 requests after a start, 8 streams"
    assert lines(*paired_readings(98, Part.FIRST))[first] == (GOAL, True)


def test_results_from_before_busy_streams_were_told_have_their_other_figures() -> None:
    earlier = paired_readings(98)
    for each in earlier:
        del each["busy_tokens"], each["busy_s"], each["decode_tokens"], each["decode_s"]
    told = [what for what in lines(*earlier) if what.startswith("speculation")]
    assert told == ["speculation on / off, 8 streams, temperature 0"]


def test_the_report_has_every_cell_what_each_engine_takes_and_the_goals() -> None:
    text = markdown(found(*paired_readings(98)))
    assert "| 8 | specdec | 150.0 | 7 | 13 | 5 | 9 | 10.00 | 0.50 |" in text
    assert "| 8 | engine | 200.0 | - | - | - | - |" in text
    assert "| specdec | 20.0 | 1000 | target 90%, proxy 10% |" in text
    assert "| serve / plain engine, tokens/s, short prompts, 8 streams | 0.750 |" in text
    assert "a processor (AVX2), 2 cores" in text


def test_the_report_says_what_speculation_does_to_passes() -> None:
    pairs = paired_readings(98)
    assert "Passes of paired turns" not in markdown(found(*pairs)), "a server that tells none"
    for each in pairs:
        drafted = {"drafted": 20, "accepted": 5} if each["speculation"] == ON else {}
        each["passes"] = {"count": 8, "pass_s": 0.4, "between_s": 0.02, "drafted": 0, "accepted": 0}
        each["passes"] |= drafted
    text = markdown(found(*pairs))
    assert "| short | 0 | 8 | on | 10 | 12.50 | 50.00 | 2.50 | 200.0 | 50.0 |" in text
    assert "| short | 0 | 8 | off | 10 | 12.50 | 50.00 | 2.50 | 0.0 | 0.0 |" in text


def test_a_result_without_peers_or_pairs_has_tables_too(tmp_path: Path) -> None:
    alone = found()
    alone["readings"] = [each for each in alone["readings"] if each["engine"] == "specdec"]
    assert acceptance(alone) == []
    assert [len(sheet.rows) for sheet in sheets(alone)] == [2, 1, 0]
    plot(alone, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
