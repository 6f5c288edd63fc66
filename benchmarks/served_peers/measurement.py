"""The rounds: in each every engine is started, asked for everything and ended, in one order.

One engine at a time is on the machine. What fails is noted, and the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

from benchmarks.harness.commands import Report
from benchmarks.peers.comparison import machine
from benchmarks.served_peers.arms import Arm
from benchmarks.served_peers.engines import ENGINE, SERVERS, SPECDEC, Server, with_spec_tokens
from benchmarks.served_peers.options import RunOptions
from benchmarks.served_peers.prompts import Prompts
from benchmarks.served_peers.readings import OFF, ON, Load, NotRun, Part, Reading, Start
from benchmarks.served_peers.sides import Side, engine_started, started
from specdec_core.errors import SpecdecError


class Measurement:
    """Fills itself; `found` may be taken at any time."""

    def __init__(
        self, options: RunOptions, prompts: Prompts, report: Report, keep: Callable[[], None]
    ) -> None:
        self._options, self._prompts, self._report, self._keep = options, prompts, report, keep
        self._logs = options.site.venvs / "logs"
        self._readings: list[Reading] = []
        self._starts: list[Start] = []
        self._not_run: list[NotRun] = []

    def run(self) -> None:
        """`keep` is called after every turn of an engine."""
        self._logs.mkdir(parents=True, exist_ok=True)
        for number in range(self._options.rounds):
            for name in self._options.engines:
                try:
                    self._turn(name, number)
                except SpecdecError as error:
                    self._not_run.append(NotRun(name, f"round {number + 1}: {error}"))
                self._keep()

    def _turn(self, name: str, number: int) -> None:
        if name == ENGINE:
            with engine_started(self._options, self._prompts, self._logs) as engine:
                engine.warm_up()
                self._cells(engine, name, number)
            return
        server = SERVERS[name]
        if name == SPECDEC and self._options.first_requests:
            self._first_without_speculation(server, number)
        self._report(f"{name} starts, round {number + 1}", 0)
        with started(server, number, self._options, self._prompts, self._logs) as (start, side):
            self._starts.append(start)
            if name == SPECDEC and self._options.first_requests:
                load = self._options.first_load(number)
                self._read(side, load, Part.FIRST, number, None, Arm(ON))
            side.warm_up()
            self._cells(side, name, number)
            if name == SPECDEC and self._options.pair_numbers(number):
                with self._sides(side, number) as sides:
                    self._pairs(sides, number)

    def _first_without_speculation(self, server: Server, number: int) -> None:
        self._report(f"{server.name} starts, round {number + 1}", 0)
        with started(server, number, self._options, self._prompts, self._logs) as (start, side):
            self._starts.append(start)
            load = self._options.first_load(number)
            self._read(side, load, Part.FIRST, number, None, Arm(OFF, is_speculating=False))

    def _cells(self, side: Side, name: str, number: int) -> None:
        for load in self._options.cells(number):
            self._read(side, load, Part.CELLS, number, None, None)

    @contextmanager
    def _sides(self, shipped: Side, number: int) -> Iterator[dict[int | None, Side]]:
        """Yield the side of each maximum K; None is the server as it ships. All of them run at the
        same time, so that the goes of a turn follow each other."""
        sides: dict[int | None, Side] = {None: shipped}
        with ExitStack() as stack:
            for place, k in enumerate(self._options.spec_tokens):
                server = with_spec_tokens(SERVERS[SPECDEC], k)
                self._report(f"{server.name} starts, round {number + 1}", 0)
                how = self._options.beside(place), self._prompts, self._logs
                start, side = stack.enter_context(started(server, number, *how))
                self._starts.append(start)
                side.warm_up()
                sides[k] = side
            yield sides

    def _pairs(self, sides: dict[int | None, Side], number: int) -> None:
        for pair in self._options.pair_numbers(number):
            for load in self._options.pair_loads(pair):
                for arm in self._options.pair_goes(pair):
                    self._read(sides[arm.spec_tokens], load, Part.PAIRS, number, pair, arm)

    def _read(
        self,
        side: Side,
        load: Load,
        part: Part,
        number: int,
        pair: int | None,
        arm: Arm | None,
    ) -> None:
        how = f", speculation {arm.name}" if arm else ""
        told = f"streams {load.streams}, {load.prompts} prompts, {part}{how}, round {number + 1}"
        self._report(told, 0)
        reading = side.read(load, part=part, round=number, pair=pair, arm=arm)
        self._readings.append(reading)
        self._report(told, 1)

    def found(self) -> dict[str, Any]:
        options = self._options
        folder = options.site.folder
        return {
            "settings": {
                **json.loads(json.dumps(asdict(options), default=str)),
                "prompt_tokens": {
                    kind: self._prompts.median_tokens(folder, kind)
                    for kind in dict.fromkeys((*options.prompts, *options.pair_prompts))
                },
            },
            "machine": machine(),
            "starts": [asdict(start) for start in self._starts],
            "readings": [asdict(reading) for reading in self._readings],
            "not_run": [entry._asdict() for entry in self._not_run],
        }
