"""A hundred hung or malicious clients: what the others lose by them."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import grpc
import psutil

from benchmarks.harness.client import ask_all
from benchmarks.harness.commands import StageReport
from benchmarks.harness.processes import Kind, below, cpu_seconds, pids_by_kind
from benchmarks.overload.asking import metadata
from benchmarks.overload.attacks import Tally, Target, attackers
from benchmarks.overload.held import held_by_kind, kind_or_other, ours
from benchmarks.overload.questions import Server, prompts
from benchmarks.overload.targets import ServiceOptions
from deployments.cli.bench.client import Prompt
from deployments.config.flags import flag, section
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

SPEED_LIMIT = 0.9
"""Share of their speed that the others keep."""
_CALM_S = 90.0
"""At most, for the answers of the slow readers to be made."""
_POLL_S = 1.0
_TIMEOUT_S = 120.0
_BEGIN_S = 60.0
"""On a busy machine its process takes ten seconds to start."""
_JOIN_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileOptions:
    """How the others are measured."""

    streams: int = flag(8, "Well-behaved streams at a time.")
    requests: int = flag(24, "Of them, in every turn.")
    max_tokens: int = flag(48, "Of every answer.")
    turns: int = flag(3, "Without and with the hostile clients.")
    slow_tokens: int = flag(48, "Of a slow reader's answer.")
    share: float = flag(1.0, "Of a hundred hostile clients.")
    output: Path | None = flag(None, "File for the figures, as JSON.")
    service: ServiceOptions = section(ServiceOptions, without=("max_queued",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The same requests without and with the hostile clients."""

    alone: float
    """Tokens per second."""
    beside: float
    attackers_cpu: float
    """Cores that the hostile clients themselves took: theirs is not the server's to answer for."""
    server_cpu: Mapping[str, float]
    """Cores of each kind of process meanwhile."""
    held_mib: tuple[float, float]
    """What serves, before and at the end of the attack."""
    tally: Mapping[str, int]

    @property
    def ratio(self) -> float:
        return self.beside / self.alone


def run_turns(
    server: Server, root_pid: int, options: HostileOptions, report: StageReport
) -> Iterator[Turn]:
    target = Target(
        server=server,
        coordinator_ports=coordinator_ports(root_pid),
        slow_tokens=options.slow_tokens,
    )
    speed(server, options)
    for number in range(options.turns):
        report("alone", number, options.turns)
        alone = speed(server, options)
        report("attacked", number, options.turns)
        yield _attacked(target, root_pid, options, alone)
        report("attacked", number + 1, options.turns)


def summary(turns: list[Turn]) -> dict[str, Any]:
    ratio = statistics.median(turn.ratio for turn in turns)
    tally = sum((Counter(turn.tally) for turn in turns), Counter[str]())
    broken = []
    if ratio < SPEED_LIMIT:
        broken.append(f"the others keep {ratio:.2f} of their speed")
    if "FAKE WORKER WAS TOLD SOMETHING" in tally:
        broken.append("a worker without a token was let in")
    return {
        "ratio": ratio,
        "ratios": [turn.ratio for turn in turns],
        "tokens_per_second_alone": [turn.alone for turn in turns],
        "tokens_per_second_beside": [turn.beside for turn in turns],
        "attackers_cores": [turn.attackers_cpu for turn in turns],
        "server_cores": [dict(turn.server_cpu) for turn in turns],
        "held_mib": [turn.held_mib for turn in turns],
        "what_the_hostile_saw": dict(sorted(tally.items())),
        "broken_promises": broken,
    }


def coordinator_ports(root_pid: int) -> tuple[int, ...]:
    """Whatever the coordinator's process listens on."""
    return tuple(
        link.laddr.port
        for pid in pids_by_kind(root_pid)[Kind.COORDINATOR]
        for link in psutil.Process(pid).net_connections("tcp")
        if link.status == psutil.CONN_LISTEN
    )


def speed(server: Server, options: HostileOptions) -> float:
    """Output tokens per second of well-behaved streams."""
    sampling = {"temperature": 0, "max_tokens": options.max_tokens, "ignore_eos": True}
    given = [Prompt(token_ids=ids, fields=sampling) for ids in prompts(options.requests)]
    run = ask_all(
        server.url,
        given,
        options.streams,
        _TIMEOUT_S,
        model=server.model,
        api_key=server.api_key,
    )
    assert not run.failures, run.failures
    return sum(one.usage.num_output for one in run.records) / run.duration_s


def _attacked(target: Target, root_pid: int, options: HostileOptions, alone: float) -> Turn:
    held_before = ours(held_by_kind(root_pid)).pss_mib
    with hostile_clients(target, options.share) as (process, tally):
        _wait_until_calm(target.server)
        started, before = time.perf_counter(), _cpu_by_kind(root_pid)
        attackers_before = _cpu(process)
        beside = speed(target.server, options)
        passed_s, after = time.perf_counter() - started, _cpu_by_kind(root_pid)
        attackers_cpu = (_cpu(process) - attackers_before) / passed_s
        held_after = ours(held_by_kind(root_pid)).pss_mib
    return Turn(
        alone=alone,
        beside=beside,
        attackers_cpu=attackers_cpu,
        server_cpu={kind: (seconds - before[kind]) / passed_s for kind, seconds in after.items()},
        held_mib=(held_before, held_after),
        tally=tally,
    )


def _cpu_by_kind(root_pid: int) -> Counter[str]:
    return cpu_seconds(below(root_pid), kind_or_other)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _wait_until_calm(server: Server) -> None:
    """Until the slow readers' answers are made, whoever reads them: that work is not measured."""
    deadline = time.monotonic() + _CALM_S
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = pb_grpc.GenerationServiceStub(channel)
        time.sleep(3 * _POLL_S)
        while time.monotonic() < deadline:
            status = stub.PoolStatus(pb.PoolStatusRequest(), timeout=30, metadata=metadata(server))
            if status.num_waiting + status.num_running <= 2:
                return
            time.sleep(_POLL_S)


@contextlib.contextmanager
def hostile_clients(
    target: Target, share: float
) -> Iterator[tuple[psutil.Process, dict[str, int]]]:
    """A process of hostile clients, all of which have begun; its tally is filled in when it has
    ended."""
    context = multiprocessing.get_context("spawn")
    begun, stop, told = context.Event(), context.Event(), context.SimpleQueue()
    process = context.Process(target=attack_until, args=(target, share, begun, stop, told))
    process.start()
    tally: dict[str, int] = {}
    try:
        assert process.pid is not None
        assert begun.wait(_BEGIN_S), f"no hostile client within {_BEGIN_S:g} s"
        yield psutil.Process(process.pid), tally
    finally:
        stop.set()
        tally.update(told.get() if process.is_alive() else {})
        process.join(_JOIN_S)


def attack_until(
    target: Target, share: float, begun: Event, stop: Event, told: SimpleQueue[dict[str, int]]
) -> None:
    """The hostile process."""
    told.put(dict(asyncio.run(_attack_until(target, share, begun, stop))))


async def _attack_until(target: Target, share: float, begun: Event, stop: Event) -> Tally:
    tally: Tally = Counter()
    tasks = attackers(target, tally, share)
    begun.set()
    await asyncio.to_thread(stop.wait)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=5)
    return tally
