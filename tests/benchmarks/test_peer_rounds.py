"""The order of the turns, and that whatever was not measured has its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from benchmarks.peers.cells import Axes, Cell, NotRun, Seat, cells_of, seat_of
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.messages import Decoded, Failed, Load, Loaded, Message, Turn
from benchmarks.peers.rounds import Measured, Rounds
from specdec_core.errors import InvalidRequestError
from tests.benchmarks.test_peer_processes import load, turn

A, B, C = (Cell(name, "plain", None, 0, 2) for name in "abc")


@dataclass
class FakeProcess:
    name: str
    told: list[str]
    answer: Callable[[Turn], Message]
    loaded: Message = field(default_factory=lambda: Loaded(seconds=1.0, facts={}))
    spent_s: float = 0.0
    is_closed: bool = False

    def ask(self, message: Message) -> Message:
        if isinstance(message, Load):
            return self.loaded
        assert isinstance(message, Turn)
        self.told.append(f"{self.name}{len(message.prompts)}")
        return self.answer(message)

    def cpu_seconds(self) -> float:
        return self.spent_s

    def resident_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True


def decoded(asked: Turn, seconds: float = 2.0) -> Decoded:
    return Decoded(seconds=seconds, token_ids=[[0] * asked.max_tokens for _ in asked.prompts])


def measure(
    processes: dict[str, FakeProcess | NotRun], *cells: Cell, repeats: int = 2, **changes: Any
) -> Measured:
    calls: dict[str, Any] = {
        "start": lambda seat: processes[seat.engine],
        "load": lambda seat: load(),
        "turn": lambda cell: replace(turn(), prompts=[[1], [2], [3]], batch_size=cell.batch_size),
        "report": lambda what, advance: None,
    }
    seats = {cell: Seat(cell.engine, None, None, 0) for cell in cells}
    return Rounds(**{**calls, **changes}).run(seats, repeats)


def test_cells_take_turns_after_a_warm_up_and_every_other_round_goes_backwards() -> None:
    told: list[str] = []
    processes = {name: FakeProcess(name, told, decoded) for name in "abc"}
    measured = measure({**processes}, A, B, C, repeats=3)
    warm_up, rounds = told[:3], told[3:]
    assert warm_up == ["a2", "b2", "c2"], "one batch"
    assert rounds == ["a3", "b3", "c3", "c3", "b3", "a3", "a3", "b3", "c3"]
    assert {cell: len(runs) for cell, runs in measured.runs.items()} == {A: 3, B: 3, C: 3}
    assert all(process.is_closed for process in processes.values())


def test_speed_is_all_tokens_over_the_runners_own_seconds() -> None:
    measured = measure({"a": FakeProcess("a", [], decoded)}, A, repeats=1)
    (run,) = measured.runs[A]
    assert run.num_tokens == 3 * 2
    assert run.tokens_per_second == 3.0


def test_an_answer_of_another_length_is_not_a_figure() -> None:
    def short(asked: Turn) -> Decoded:
        return Decoded(seconds=1.0, token_ids=[[0], *[[0, 0]] * (len(asked.prompts) - 1)])

    measured = measure({"a": FakeProcess("a", [], short), "b": FakeProcess("b", [], decoded)}, A, B)
    assert list(measured.runs) == [B]
    (entry,) = measured.not_run
    assert entry.name == "a plain B=2, warm-up"
    assert "2 answers of [1, 2] tokens, asked for 2" in entry.reason


def test_every_engine_that_is_not_there_is_told_with_its_reason() -> None:
    processes = {
        "a": NotRun("a", "no environment"),
        "b": FakeProcess("b", [], decoded, loaded=Failed(reason="no model")),
        "c": FakeProcess("c", [], lambda asked: Failed(reason="out of blocks")),
    }
    measured = measure(processes, A, B, C)
    assert measured.runs == {}
    assert measured.not_run == [
        NotRun("a", "no environment"),
        NotRun("b", "no model"),
        NotRun("c plain B=2, warm-up", "out of blocks"),
    ]


def test_a_model_that_cannot_be_made_for_one_engine_leaves_the_others() -> None:
    def cannot(seat: Seat) -> Load:
        if seat.engine == "a":
            raise InvalidRequestError("needs the GGUF file of a demo model")
        return load()

    processes = {name: FakeProcess(name, [], decoded) for name in "ab"}
    measured = measure({**processes}, A, B, load=cannot)
    assert list(measured.runs) == [B]
    assert measured.not_run == [NotRun("a", "needs the GGUF file of a demo model")]


def test_a_runner_that_loads_when_the_command_ends_is_closed_too() -> None:
    class Ended(FakeProcess):
        def ask(self, message: Message) -> Message:
            raise SystemExit

    first, second = FakeProcess("a", [], decoded), Ended("b", [], decoded)
    with pytest.raises(SystemExit):
        measure({"a": first, "b": second}, A, B)
    assert first.is_closed
    assert second.is_closed


def test_what_the_waiting_runners_take_is_told() -> None:
    waiting = FakeProcess("b", [], decoded)

    def while_waiting(asked: Turn) -> Decoded:
        waiting.spent_s += 0.25
        return decoded(asked)

    measured = measure({"a": FakeProcess("a", [], while_waiting), "b": waiting}, A, B, repeats=1)
    assert measured.runs[A][0].others_cpu_s == 0.25
    assert measured.runs[B][0].others_cpu_s == 0.0


AXES = Axes(
    methods=("plain", "ngram", "draft_model", "hybrid"),
    drafts=("small", "self"),
    spec_tokens=(2, 4),
    batch_sizes=(8, 1),
    temperature=0.0,
)


def test_cells_come_batch_by_batch_and_plain_decoding_has_neither_draft_nor_k() -> None:
    cells, not_run = cells_of([ENGINES["specdec"]], AXES)
    assert not not_run
    assert len(cells) == len(set(cells)) == 2 * (1 + 2 + 2 * 2 * 2)
    assert [cell.batch_size for cell in cells] == [8] * 11 + [1] * 11
    assert cells[0] == Cell("specdec", "plain", None, 0, 8)


def test_what_an_engine_does_at_batch_1_only_is_left_out_with_that_reason() -> None:
    cells, not_run = cells_of([ENGINES["transformers"]], AXES)
    assert {cell.batch_size for cell in cells if cell.method != "plain"} == {1}
    assert {entry.reason for entry in not_run} == {"transformers has it up to batch 1"}
    assert len(not_run) == 6


def test_an_engine_that_never_samples_is_left_out_where_others_sample() -> None:
    axes = replace(AXES, temperature=0.8)
    cells, not_run = cells_of([ENGINES["paper"]], axes)
    assert not cells
    assert {entry.reason for entry in not_run} == {"paper decodes greedily only"}


def test_a_process_serves_every_batch_size_and_one_draft_where_loading_settles_it() -> None:
    cells, _ = cells_of([ENGINES["vllm"], ENGINES["specdec"]], AXES)
    seats = {seat_of(cell, ENGINES[cell.engine]) for cell in cells}
    names = sorted(seat.name for seat in seats)
    drafts = [f"vllm-draft_model-{draft}-k{k}" for draft in ("self", "small") for k in (2, 4)]
    assert names == ["specdec", *drafts, "vllm-ngram-k2", "vllm-ngram-k4", "vllm-plain"]
