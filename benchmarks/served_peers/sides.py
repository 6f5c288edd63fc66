"""A server or the engine while it is its turn: started, asked, ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psutil

from benchmarks.harness.machine import stolen_share
from benchmarks.harness.processes import MIB
from benchmarks.harness.starting import ServerProcess
from benchmarks.peers.messages import Decoded, Loaded, Turn, reason
from benchmarks.peers.messages import Load as EngineLoad
from benchmarks.peers.processes import RunnerProcess
from benchmarks.served_peers.arms import Arm
from benchmarks.served_peers.client import Asked, Client
from benchmarks.served_peers.engines import ENGINE, Server, Site, inherited
from benchmarks.served_peers.options import RunOptions
from benchmarks.served_peers.prompts import Prompts, has_fixed_length, token_ids
from benchmarks.served_peers.readings import Load, Part, Reading, Start
from specdec_core.errors import SpecdecError

_WARM_UP_REQUESTS, _WARM_UP_TOKENS = 8, 16
_REPOSITORY = Path(__file__).parents[2]


class Side(Protocol):
    """What a turn needs of whatever decodes."""

    def read(
        self, load: Load, *, part: Part, round: int, pair: int | None, arm: Arm | None
    ) -> Reading: ...


class ServerSide:
    """One start of a server."""

    def __init__(
        self, server: Server, process: ServerProcess, options: RunOptions, prompts: Prompts
    ) -> None:
        self._server, self._process = server, process
        self._options, self._prompts = options, prompts
        self._client = Client(server, options.site.url, options.timeout_s)

    def warm_up(self) -> None:
        for kind in dict.fromkeys((*self._options.prompts, *self._options.pair_prompts)):
            load = Load(kind, max(self._options.streams), 0.0, _WARM_UP_REQUESTS, 0)
            self._ask(load, _WARM_UP_TOKENS, {})

    def read(
        self, load: Load, *, part: Part, round: int, pair: int | None, arm: Arm | None
    ) -> Reading:
        fields = speculation_fields(arm)
        cpu, machine = self._process.cpu_by_kind(), psutil.cpu_times()
        client_s = time.process_time()
        asked = self._ask(load, self._options.max_tokens, fields)
        after, client_s = self._process.cpu_by_kind(), time.process_time() - client_s
        return Reading(
            engine=self._server.name,
            part=part,
            round=round,
            pair=pair,
            speculation=arm and arm.name,
            **load.shape,
            **asked._asdict(),
            cpu_s={kind: used for kind in after if (used := after[kind] - cpu[kind]) > 0},
            client_cpu_s=client_s,
            resident_mib=self._process.resident_mib(),
            stolen=stolen_share(machine, psutil.cpu_times()),
        )

    def _ask(self, load: Load, max_tokens: int, fields: Mapping[str, Any]) -> Asked:
        return self._client.ask(
            self._prompts.lines(load.prompts, load.num_requests, load.first),
            streams=load.streams,
            max_tokens=max_tokens,
            temperature=load.temperature,
            fields=fields,
            ignore_eos=has_fixed_length(load.prompts),
        )


def speculation_fields(arm: Arm | None) -> dict[str, Any]:
    """Return what a request of the arm sends. A maximum K is the server's and not the request's."""
    return {} if arm is None or arm.is_speculating else {"speculative": {"enabled": False}}


@contextmanager
def started(
    server: Server, number: int, options: RunOptions, prompts: Prompts, logs: Path
) -> Iterator[tuple[Start, ServerSide]]:
    """Ready inside, ended after. Raises SpecdecError where it does not start."""
    site = options.site
    command, variables = server.command(site), server.variables(site)
    log = logs / f"{server.name}.log"
    process = ServerProcess(command, inherited() | variables, log)
    try:
        ready_s = process.wait_until_ready(site.url + server.ready_path, options.ready_timeout_s)
        start = Start(
            engine=server.name,
            round=number,
            ready_s=ready_s,
            command=command,
            variables=variables,
        )
        yield start, ServerSide(server, process, options, prompts)
    finally:
        process.close()


class EngineSide:
    """The engine alone: plain decoding of as many rows as streams, in a process of its own."""

    def __init__(self, process: RunnerProcess, options: RunOptions, prompts: Prompts) -> None:
        self._process, self._options, self._prompts = process, options, prompts
        answer = process.ask(engine_load(options.site))
        if not isinstance(answer, Loaded):
            raise SpecdecError(reason(answer))

    def warm_up(self) -> None:
        for kind in self._options.prompts:
            load = Load(kind, max(self._options.streams), 0.0, _WARM_UP_REQUESTS, 0)
            self._decode(self._rows(load), load, _WARM_UP_TOKENS)

    def read(
        self, load: Load, *, part: Part, round: int, pair: int | None, arm: Arm | None
    ) -> Reading:
        cpu_s, machine = self._process.cpu_seconds(), psutil.cpu_times()
        rows = self._rows(load)
        tokens, seconds = self._decode(rows, load, self._options.max_tokens)
        return Reading(
            engine=ENGINE,
            part=part,
            round=round,
            **load.shape,
            input_tokens=sum(map(len, rows)),
            tokens=tokens,
            seconds=seconds,
            busy_tokens=tokens,
            busy_s=seconds,
            cpu_s={ENGINE: self._process.cpu_seconds() - cpu_s},
            resident_mib=self._process.resident_bytes() / MIB,
            stolen=stolen_share(machine, psutil.cpu_times()),
        )

    def _rows(self, load: Load) -> list[list[int]]:
        lines = self._prompts.lines(load.prompts, load.num_requests, load.first)
        return token_ids(self._options.site.folder, lines)

    def _decode(self, rows: list[list[int]], load: Load, max_tokens: int) -> tuple[int, float]:
        """As many at a time as there are streams, as clients that wait for their answers."""
        answers = [
            self._ask(rows[first : first + load.streams], max_tokens, load.temperature)
            for first in range(0, len(rows), load.streams)
        ]
        tokens = sum(len(ids) for answer in answers for ids in answer.token_ids)
        return tokens, sum(answer.seconds for answer in answers)

    def _ask(self, rows: list[list[int]], max_tokens: int, temperature: float) -> Decoded:
        answer = self._process.ask(
            Turn(
                method="plain",
                batch_size=len(rows),
                prompts=rows,
                max_tokens=max_tokens,
                temperature=temperature,
            )
        )
        if not isinstance(answer, Decoded):
            raise SpecdecError(reason(answer))
        return answer


def engine_load(site: Site) -> EngineLoad:
    return EngineLoad(
        target=site.folder,
        max_batch_size=site.max_streams,
        max_model_len=site.max_model_len,
        dtype="auto",
        threads=site.threads,
        unused_id=0,
        options={"spec_policy": "fixed", "numerics": "auto"},
    )


@contextmanager
def engine_started(options: RunOptions, prompts: Prompts, logs: Path) -> Iterator[EngineSide]:
    process = RunnerProcess(
        [sys.executable, "-m", "benchmarks.peers.runners.specdec_engine"],
        variables={"PYTHONPATH": f"{_REPOSITORY}:{_REPOSITORY / 'proto'}"},
        log=logs / f"{ENGINE}.log",
        timeout_s=options.timeout_s,
    )
    try:
        yield EngineSide(process, options, prompts)
    finally:
        process.close()
