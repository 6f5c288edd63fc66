"""Load comes in steps: targets and drafts follow it up and back, and no client notices."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pytest

from benchmarks.harness.ports import free_port
from benchmarks.harness.processes import Kind, pids_by_kind
from benchmarks.harness.starting import service as served
from deployments.config.service import ServiceConfig
from specdec.v1 import generation_pb2 as pb
from specdec_core.config import KPolicyName, Numerics
from tests.conftest import StartedAlone
from tests.service.conftest import Oracle
from tests.service.test_cells import Cells
from tests.service.test_service import PROMPT, completion, token_ids
from tests.service.tiny_folder import save_tiny_llama

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

LIMIT_S = 240.0
NUM_CLIENTS = 12
"""Three times what a target admits."""
NUM_PROMPTS = 4
NUM_TOKENS = 200
_LINE = re.compile(
    r"autoscaling (\S+): (\d+) -> (\d+) because of (\S+) ([\d.e+]+) \(threshold ([\d.]+)\)"
)


class Change(NamedTuple):
    """One decision, as the log tells it."""

    deployment: str
    before: int
    after: int
    signal: str
    value: float
    threshold: float


@dataclass(frozen=True)
class Scaled(Cells):
    """The running service, seen by its replicas and by its log."""

    def until(self, **numbers: int) -> None:
        """So many of a role serve, and no other."""
        deadline = time.monotonic() + LIMIT_S
        while not numbers.items() <= _numbers(status := self.status()).items():
            assert time.monotonic() < deadline, (status, self.changes())
            time.sleep(0.2)

    def changes(self) -> list[Change]:
        (controller,) = pids_by_kind(self.process.pid)[Kind.CONTROLLER]
        files = psutil.Process(controller).open_files()
        (log,) = [file.path for file in files if "controller_" in Path(file.path).name]
        found = (_LINE.search(line) for line in Path(log).read_text().splitlines())
        return [
            Change(m[1], int(m[2]), int(m[3]), m[4], float(m[5]), float(m[6])) for m in found if m
        ]


def _numbers(status: pb.PoolStatusResponse) -> dict[str, int]:
    roles = [replica.role for replica in status.replicas]
    return {role: roles.count(role) for role in ("target", "draft")}


@pytest.fixture
def scaled(
    tmp_path_factory: pytest.TempPathFactory, started_alone: StartedAlone
) -> Iterator[Scaled]:
    config = ServiceConfig.of(
        model=str(save_tiny_llama(tmp_path_factory.mktemp("target"))),
        served_model_name="tiny",
        spec_model=str(save_tiny_llama(tmp_path_factory.mktemp("draft"), noise=0.01)),
        dtype="bfloat16",
        numerics=Numerics.EXACT,
        audit_share=0.0,
        kv_cache_tokens=8192,
        torch_threads=1,
        max_num_seqs=4,
        window=4,
        min_target_replicas=1,
        max_target_replicas=3,
        min_draft_replicas=0,
        max_draft_replicas=2,
        target_num_cpus=0.5,
        draft_num_cpus=0.5,
        max_ingress_replicas=1,
        scale_up_delay_s=1,
        scale_down_delay_s=2,
        scale_zero_delay_s=5,
        scale_draft_busy=0.3,
        spec_policy=KPolicyName.FIXED,  # goodput would leave a draft as dear as its target unused
        port=free_port(),
        grpc_port=free_port(),
        graceful_shutdown_s=20,
    )
    with started_alone(served(config)) as process:
        yield Scaled(config, process)


def asking(url: str, place: int, is_over: threading.Event) -> list[tuple[int, list[int]]]:
    """One request behind the other; each one's prompt and answer."""
    answers = []
    with httpx.Client(base_url=url, timeout=LIMIT_S) as http:
        while not is_over.is_set():
            number = (place + len(answers)) % NUM_PROMPTS
            body = completion([*PROMPT, number], max_tokens=NUM_TOKENS)
            answers.append((number, token_ids(http.post("/v1/completions", json=body))))
    return answers


def check(answers: list[tuple[int, list[int]]], plain: Oracle) -> None:
    expected = [
        plain.tokens([*PROMPT, number], max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
        for number in range(NUM_PROMPTS)
    ]
    assert answers
    assert [ids == expected[number] for number, ids in answers] == [True] * len(answers)


def chain(changes: list[Change], deployment: str) -> list[int]:
    """The numbers of a deployment; every change goes on where the one before ended."""
    own = [change for change in changes if change.deployment == deployment]
    assert all(a.after == b.before for a, b in pairwise(own)), own
    return [own[0].before, *(change.after for change in own)]


def test_targets_and_drafts_follow_load_steps_and_no_request_fails(scaled: Scaled) -> None:
    calm, calmer, over = (threading.Event() for _ in range(3))
    with ThreadPoolExecutor(NUM_CLIENTS) as threads:
        clients = [
            threads.submit(asking, scaled.url, place, is_over)
            for place, is_over in enumerate([over, calmer, calmer, *[calm] * (NUM_CLIENTS - 3)])
        ]
        try:
            scaled.until(target=3, draft=2)
            calm.set()
            scaled.until(target=1)  # under three clients, whose sequences move
            calmer.set()
            scaled.until(target=1, draft=1)
            over.set()
            scaled.until(target=1, draft=0)
        finally:
            for event in (calm, calmer, over):
                event.set()
        answers = [answer for client in clients for answer in client.result(LIMIT_S)]
    check(answers, Oracle(Path(scaled.config.model)))
    changes = scaled.changes()
    print(*changes, f"{len(answers)} answers", sep="\n")
    targets, drafts = chain(changes, "target"), chain(changes, "draft")
    assert (targets[0], max(targets), targets[-1]) == (1, 3, 1)
    assert (max(drafts), drafts[-1]) == (2, 0)
    assert len(targets) <= 5, "up in at most two steps, down in two"
    for change in changes:
        if change.after > change.before:
            assert change.value > change.before * change.threshold, change
