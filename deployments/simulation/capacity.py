"""The simulated world without faults, charged with the cost of steps and coordinator, to measure
its capacity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from deployments.simulation.coordinating import CoordinatorCosts, CoordinatorProcess
from deployments.simulation.entering import IngressProcess
from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.network import Delays, Network
from deployments.simulation.peer import Surroundings
from deployments.simulation.record import Record
from deployments.simulation.replicating import ReplicaProcess
from deployments.simulation.step_costs import Accelerator, StepCosts
from deployments.simulation.timeline import Timeline
from deployments.simulation.virtual_loop import leave_loops
from specdec_core.config import SchedulerConfig
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import GroupLease, ReplicaInfo, Role
from specdec_core.request import Request, TokenEvent
from specdec_core.sampling_params import SamplingParams

_VOCAB_SIZE = 50_000
_KV_CACHE_SPEC = FullAttentionSpec(block_size=16)
_HANDSHAKES_S = 0.05
"""Virtual seconds by which replicas have registered; requests begin then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One cell: its accelerators, its coordinator, and how it decodes."""

    num_targets: int
    num_drafts: int
    scheduler: SchedulerConfig
    steps: StepCosts
    acceptance: float
    """Chance that a drafted token is right if those before it are."""
    coordinator: CoordinatorCosts
    draft_share: float = 1.0
    """Share of an accelerator that each draft has. Its steps take 1 / `draft_share` times as
    long."""
    is_colocated: bool = False
    """Draft i runs on the accelerator of target i."""


@dataclass(frozen=True, slots=True)
class Job:
    """One request."""

    prompt_len: int
    output_len: int


@dataclass(eq=False, slots=True)
class Answer:
    """Times at which one request's tokens came."""

    job: Job
    sent_at: float
    first_at: float | None = None
    ended_at: float | None = None
    num_tokens: int = 0


@dataclass(eq=False, slots=True)
class CellRun:
    """Measurements of one cell."""

    seconds: float
    """Virtual seconds measured."""
    num_tokens: int = 0
    answers: list[Answer] = field(default_factory=list)
    """Answers of requests that have ended."""
    target_busy: list[float] = field(default_factory=list)
    """Share of the time that each target is busy."""
    draft_busy: list[float] = field(default_factory=list)
    coordinator_busy: float = 0.0
    num_refused: int = 0


class Cell:
    """Runs one cell for some virtual time."""

    def __init__(self, plant: Plant, seed: int, num_positions: int) -> None:
        """`num_positions` is the size of each replica's KV cache, in positions."""
        self._plant = plant
        self._num_positions = num_positions
        self._random = Random(seed)
        self._timeline = Timeline(self._random)
        record = Record(lambda: self._timeline.now, traces=False)
        network = Network(self._timeline, self._random, Delays(0.0001, 0.0003), record)
        self._coordinator = CoordinatorProcess(
            self._timeline,
            network,
            "coordinator",
            plant.scheduler,
            new_epoch=lambda: self._random.getrandbits(64),
            costs=plant.coordinator,
        )
        self._world = Surroundings(self._timeline, network, self._random, self._coordinator)
        self._ingress = IngressProcess(self._world, "ingress", float("inf"))
        self._replicas: list[ReplicaProcess] = []
        self._run = CellRun(0.0)
        self._measured_from = 0.0
        self._num_sent = 0

    def run_open(self, jobs: Iterable[tuple[float, Job]], seconds: float) -> CellRun:
        """Run for `seconds`; each request is sent at its given time."""
        for time, job in jobs:
            self._timeline.at(_HANDSHAKES_S + time, partial(self._send, job, None))
        return self._run_for(0.0, seconds)

    def run_closed(self, jobs: list[Job], warm_up_s: float, seconds: float) -> CellRun:
        """Run one client per job. Each sends its job again as soon as it is answered."""
        for index, job in enumerate(jobs):
            # Apart, so that they do not stay in step for ever.
            job_now = replace(job, output_len=1 + index * job.output_len // len(jobs))
            self._timeline.at(_HANDSHAKES_S, partial(self._send, job_now, job))
        return self._run_for(warm_up_s, seconds)

    def _run_for(self, warm_up_s: float, seconds: float) -> CellRun:
        self._start()
        self._measured_from = _HANDSHAKES_S + warm_up_s
        self._timeline.at(self._measured_from, self._begin_measuring)
        end = self._measured_from + seconds
        while self._timeline.now < end and self._timeline.run_next():
            pass
        leave_loops()
        self._run.seconds = seconds
        for process in self._replicas:
            is_target = process.runner.info.role is Role.TARGET
            shares = self._run.target_busy if is_target else self._run.draft_busy
            shares.append(process.busy_s / seconds)
        self._run.coordinator_busy = self._coordinator.busy_s / seconds
        return self._run

    def _start(self) -> None:
        self._coordinator.start()
        devices = [Accelerator(f"device-{n}") for n in range(self._plant.num_targets)]
        for index in range(self._plant.num_targets):
            self._replicas.append(self._replica(Role.TARGET, index, devices[index]))
        for index in range(self._plant.num_drafts):
            device = devices[index] if self._plant.is_colocated else Accelerator()
            self._replicas.append(self._replica(Role.DRAFT, index, device))
        for process in (*self._replicas, self._ingress):
            process.start()

    def _replica(self, role: Role, index: int, device: Accelerator) -> ReplicaProcess:
        info = ReplicaInfo(
            replica_id=f"{role}-{index:03}",
            role=role,
            incarnation=0,
            num_blocks=_KV_CACHE_SPEC.blocks_for(self._num_positions),
            kv_cache_spec=_KV_CACHE_SPEC,
            max_model_len=self._num_positions,
            vocab_size=_VOCAB_SIZE,
            model_digest="model",
            device=device.name,
        )
        runner = ModelReplica(info, self._plant.acceptance)
        return ReplicaProcess(self._world, runner, self._step_seconds, accelerator=device)

    def _step_seconds(self, lease: GroupLease) -> float:
        seconds = self._plant.steps.seconds(lease)
        return seconds / self._plant.draft_share if lease.role is Role.DRAFT else seconds

    def _begin_measuring(self) -> None:
        self._coordinator.busy_s = 0.0
        for process in self._replicas:
            process.busy_s = 0.0

    def _send(self, job: Job, again: Job | None) -> None:
        """Send a request. `again` is the job that the client sends after the answer."""
        seed = self._num_sent
        self._num_sent += 1
        request = Request(
            request_id=f"r{seed}",
            prompt_token_ids=tuple(self._random.choices(range(_VOCAB_SIZE), k=job.prompt_len)),
            params=SamplingParams(max_tokens=job.output_len, seed=seed),
        )
        self._ingress.submit(_LoadClient(request, Answer(job, self._timeline.now), self, again))

    def heard(self, answer: Answer, event: TokenEvent, again: Job | None) -> None:
        now = self._timeline.now
        is_measured = now >= self._measured_from
        if is_measured:
            self._run.num_tokens += len(event.token_ids)
        answer.num_tokens += len(event.token_ids)
        if answer.first_at is None:
            answer.first_at = now
        if event.finish_reason is not None:
            answer.ended_at = now
            if is_measured and answer.sent_at >= self._measured_from:
                self._run.answers.append(answer)
            if again is not None:
                self._send(again, again)

    def refused(self) -> None:
        self._run.num_refused += 1


@dataclass(eq=False, slots=True)
class _LoadClient:
    """Client that counts tokens and times."""

    request: Request
    answer: Answer
    cell: Cell
    again: Job | None

    def hear(self, event: TokenEvent) -> None:
        self.cell.heard(self.answer, event, self.again)

    def fail(self, error: Exception) -> None:
        self.cell.refused()


def run_cells(cells: list[CellRun]) -> dict[str, Any]:
    """Return the figures of all cells together; times in milliseconds."""
    answers = [answer for cell in cells for answer in cell.answers]
    ttft = sorted(1e3 * (a.first_at - a.sent_at) for a in answers if a.first_at is not None)
    tpot = sorted(
        1e3 * (a.ended_at - a.first_at) / (a.num_tokens - 1)
        for a in answers
        if a.first_at is not None and a.ended_at is not None and a.num_tokens > 1
    )
    targets = [share for cell in cells for share in cell.target_busy]
    drafts = [share for cell in cells for share in cell.draft_busy]
    return {
        "tokens_per_second": sum(cell.num_tokens / cell.seconds for cell in cells),
        "requests_per_second": sum(len(cell.answers) / cell.seconds for cell in cells),
        "num_answers": len(answers),
        "num_refused": sum(cell.num_refused for cell in cells),
        "ttft_ms": _percentiles(ttft),
        "tpot_ms": _percentiles(tpot),
        "target_utilisation": _mean(targets),
        "draft_utilisation": _mean(drafts),
        "coordinator_utilisation": _mean([cell.coordinator_busy for cell in cells]),
    }


def _percentiles(ordered: list[float]) -> dict[str, float | None]:
    if not ordered:
        return {"p50": None, "p90": None, "p99": None}
    last = len(ordered) - 1
    return {f"p{p}": ordered[round(p / 100 * last)] for p in (50, 90, 99)}


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
