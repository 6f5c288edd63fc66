"""The measurement: every runner loads once, then cells in turns, one process awake at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import psutil

from benchmarks.harness.commands import Report
from benchmarks.harness.machine import stolen_share
from benchmarks.peers.cells import Cell, NotRun, Seat
from benchmarks.peers.messages import Decoded, Failed, Load, Loaded, Message, Turn, reason
from specdec_core.errors import SpecdecError


class Process(Protocol):
    """What is used of a RunnerProcess."""

    def ask(self, message: Message) -> Message: ...

    def cpu_seconds(self) -> float: ...

    def resident_bytes(self) -> int: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One turn of one cell."""

    seconds: float
    num_tokens: int
    token_ids: list[list[int]]
    figures: dict[str, float]
    stolen: float
    """Share of the machine that its host gave to somebody else meanwhile."""
    others_cpu_s: float
    """Taken meanwhile by the runners whose turn it was not."""

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


@dataclass(slots=True)
class Measured:
    """Everything that came out."""

    runs: dict[Cell, list[Run]] = field(default_factory=dict)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    """By seat."""
    not_run: list[NotRun] = field(default_factory=list)


class Rounds:
    """Drives processes that are given; closes them all, however it ends."""

    def __init__(
        self,
        start: Callable[[Seat], Process | NotRun],
        load: Callable[[Seat], Load],
        turn: Callable[[Cell], Turn],
        report: Report,
    ) -> None:
        self._start, self._load, self._turn, self._report = start, load, turn, report
        self._processes: dict[Seat, Process] = {}
        self._started: list[Process] = []
        self._measured = Measured()

    def run(self, seats: Mapping[Cell, Seat], repeats: int) -> Measured:
        """A warm-up of one batch for every cell, then the rounds, every other one backwards."""
        try:
            for seat in dict.fromkeys(seats.values()):
                self._report(f"{seat.name}, loading", 0)
                self._open(seat)
            cells = [cell for cell in seats if self._warm_up(cell, seats[cell])]
            for number in range(repeats):
                for cell in cells if number % 2 == 0 else reversed(cells):
                    self._measure(cell, seats[cell], f"{cell.name}, round {number + 1}")
        finally:
            for process in self._started:
                process.close()
        return self._measured

    def _open(self, seat: Seat) -> None:
        try:
            message = self._load(seat)
        except SpecdecError as error:
            self._measured.not_run.append(NotRun(seat.name, str(error)))
            return
        process = self._start(seat)
        if isinstance(process, NotRun):
            self._measured.not_run.append(process)
            return
        self._started.append(process)
        answer = process.ask(message)
        if isinstance(answer, Loaded):
            self._processes[seat] = process
            load = {"load_seconds": f"{answer.seconds:.1f}"}
            resident = {"resident_mib": str(process.resident_bytes() >> 20)}
            self._measured.facts[seat.name] = {**answer.facts, **load, **resident}
        else:
            process.close()
            self._measured.not_run.append(NotRun(seat.name, reason(answer)))

    def _warm_up(self, cell: Cell, seat: Seat) -> bool:
        """False where the cell cannot be run."""
        if seat not in self._processes:
            self._report(cell.name, 1)
            return False
        turn = self._turn(cell)
        first = replace(turn, prompts=turn.prompts[: cell.batch_size])
        return self._ask(cell, seat, first, f"{cell.name}, warm-up") is not None

    def _measure(self, cell: Cell, seat: Seat, told: str) -> None:
        others = [process for other, process in self._processes.items() if other != seat]
        machine, others_s = psutil.cpu_times(), _cpu_seconds(others)
        answer = self._ask(cell, seat, self._turn(cell), told)
        if answer is None:
            return
        run = Run(
            seconds=answer.seconds,
            num_tokens=sum(len(ids) for ids in answer.token_ids),
            token_ids=answer.token_ids,
            figures=answer.figures,
            stolen=stolen_share(machine, psutil.cpu_times()),
            others_cpu_s=_cpu_seconds(others) - others_s,
        )
        self._measured.runs.setdefault(cell, []).append(run)

    def _ask(self, cell: Cell, seat: Seat, turn: Turn, told: str) -> Decoded | None:
        """None, and the reason is kept, where the answer is not what was asked for."""
        self._report(told, 0)
        answer = self._processes[seat].ask(turn)
        self._report(told, 1)
        if isinstance(answer, Decoded):
            lengths = {len(ids) for ids in answer.token_ids}
            if len(answer.token_ids) == len(turn.prompts) and lengths == {turn.max_tokens}:
                return answer
            told_lengths = f"{len(answer.token_ids)} answers of {sorted(lengths)} tokens"
            answer = Failed(reason=f"{told_lengths}, asked for {turn.max_tokens} tokens each")
        self._measured.not_run.append(NotRun(told, reason(answer)))
        return None


def _cpu_seconds(processes: Sequence[Process]) -> float:
    return sum(process.cpu_seconds() for process in processes)
