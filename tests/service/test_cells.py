"""Two cells in a service of their own: the load is split, and what ends one leaves the other."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import httpx
import pytest

from benchmarks.harness.ports import free_port
from benchmarks.harness.processes import Kind, pids_by_kind
from benchmarks.harness.starting import ServerProcess
from benchmarks.harness.starting import service as served
from deployments.config.service import ServiceConfig
from deployments.wire.cell_ids import new_id_of
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc
from specdec_core.config import Numerics
from tests.conftest import StartedAlone
from tests.service.conftest import Oracle
from tests.service.test_service import PROMPT, completion, mixed, token_ids
from tests.service.tiny_folder import save_tiny_llama

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

NUM_REQUESTS = 80
LONG = 900
"""Tokens of a stream that still runs when its coordinator is back."""
LIMIT_S = 120.0


@dataclass(frozen=True)
class Cells:
    """The running service."""

    config: ServiceConfig
    process: ServerProcess

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.config.port}"

    def status(self) -> pb.PoolStatusResponse:
        with grpc.insecure_channel(f"127.0.0.1:{self.config.grpc_port}") as channel:
            stub = pb_grpc.GenerationServiceStub(channel)
            answer: pb.PoolStatusResponse = stub.PoolStatus(pb.PoolStatusRequest(), timeout=20)
            return answer

    def epochs(self) -> dict[int, int]:
        """Lives of the coordinators that answer and have a target."""
        return {one.cell: one.epoch for one in self.status().cells if one.replicas}

    def until_complete(self, *, other_than: dict[int, int] | None = None) -> dict[int, int]:
        """Both cells have a target, one of them under another epoch than in `other_than`."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            epochs = self.epochs()
            if len(epochs) == self.config.scaling.cells and epochs != other_than:
                return epochs
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.1)

    def until_audited(self) -> pb.PoolStatusResponse:
        deadline = time.monotonic() + LIMIT_S
        while (status := self.status()).audit.num_pending:
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        return status

    def coordinators(self) -> tuple[int, ...]:
        return pids_by_kind(self.process.pid)[Kind.COORDINATOR]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, started_alone: StartedAlone) -> Iterator[Cells]:
    config = ServiceConfig.of(
        model=str(save_tiny_llama(tmp_path_factory.mktemp("target"))),
        served_model_name="tiny",
        dtype="bfloat16",
        numerics=Numerics.EXACT,
        audit_share=1.0,
        kv_cache_tokens=8192,
        torch_threads=1,
        cells=2,
        target_num_cpus=0.5,
        ingress_replicas=2,
        max_ingress_replicas=2,
        port=free_port(),
        grpc_port=free_port(),
        graceful_shutdown_s=5,
    )
    with started_alone(served(config)) as process:
        started = Cells(config, process)
        started.until_complete()
        yield started


@pytest.fixture(scope="module")
def plain(cells: Cells) -> Oracle:
    return Oracle(Path(cells.config.model))


@dataclass
class Stream:
    """One stream, and when each of its pieces came."""

    home: int
    ids: list[int] = field(default_factory=list)
    came_at: list[float] = field(default_factory=list)

    def read(self, url: str) -> None:
        body = completion(max_tokens=LONG, stream=True, speculative={"enabled": False})
        body["request_id"] = new_id_of(self.home, 2)
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=LIMIT_S) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                    self.ids += choice["token_ids"]
                    self.came_at.append(time.monotonic())

    def longest_gap_s(self, since: float) -> float:
        """Of those that ended after `since`."""
        pairs = itertools.pairwise(self.came_at)
        return max(after - before for before, after in pairs if after > since)


def test_the_load_is_split_and_all_answers_are_those_of_plain_decoding(
    cells: Cells, plain: Oracle
) -> None:
    asked = mixed(NUM_REQUESTS)
    before = cells.status()
    with (
        httpx.Client(base_url=cells.url, timeout=LIMIT_S) as http,
        ThreadPoolExecutor(16) as threads,
    ):
        bodies = [completion(**fields) for fields in asked]
        answers = list(threads.map(lambda b: http.post("/v1/completions", json=b), bodies))
    for fields, answer in zip(asked, answers, strict=True):
        params = {name: value for name, value in fields.items() if name != "prompt"}
        assert token_ids(answer) == plain.tokens(fields["prompt"], ignore_eos=True, **params)
    after = cells.until_audited()
    ended = "num_finished_length"
    shares = [
        now.counters[ended] - then.counters[ended]
        for now, then in zip(after.cells, before.cells, strict=True)
    ]
    print(f"requests of each cell: {shares}")
    assert sum(shares) == NUM_REQUESTS
    assert all(0.8 * NUM_REQUESTS / 2 <= share <= 1.2 * NUM_REQUESTS / 2 for share in shares)
    assert all(one.audit.num_audited > 0 for one in after.cells)
    assert after.audit.num_diverged == 0


@pytest.mark.nightly
def test_a_killed_coordinator_leaves_the_other_cell_undisturbed(
    cells: Cells, plain: Oracle
) -> None:
    expected = plain.tokens(PROMPT, max_tokens=LONG, temperature=0.0, ignore_eos=True)
    before = cells.until_complete()
    victim, _ = cells.coordinators()
    streams = [Stream(home) for home in (0, 1) for _ in range(2)]
    with ThreadPoolExecutor(len(streams)) as threads:
        running = [threads.submit(stream.read, cells.url) for stream in streams]
        while not all(len(stream.came_at) > 50 for stream in streams):
            assert not any(one.done() for one in running), [one.exception() for one in running]
            time.sleep(0.01)
        killed_at = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        for one in running:
            one.result(LIMIT_S)
    after = cells.until_complete(other_than=before)
    (hit,) = [cell for cell, epoch in after.items() if epoch != before[cell]]
    assert [stream.ids == expected for stream in streams] == [True] * len(streams)
    gaps = {
        cell: max(s.longest_gap_s(killed_at) for s in streams if s.home == cell) for cell in after
    }
    earlier = max(s.longest_gap_s(0.0) for s in streams if s.home != hit)
    print(f"longest gaps behind the kill of cell {hit}: {gaps}; of the other ever: {earlier}")
    assert gaps[1 - hit] < gaps[hit] / 2
