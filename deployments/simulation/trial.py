"""Runs one seed: draws a world, runs traffic and faults until all is quiet, then checks the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from deployments.simulation.client import Client, Outcome
from deployments.simulation.coordinating import CoordinatorProcess
from deployments.simulation.entering import IngressProcess
from deployments.simulation.invariants import Bounds, Invariants, SlotChecks
from deployments.simulation.invariants.books import leftovers
from deployments.simulation.invariants.kv_owners import KVOwners
from deployments.simulation.invariants.patience import Patience
from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.network import Delays, Network
from deployments.simulation.peer import Surroundings
from deployments.simulation.record import Record, Violation
from deployments.simulation.replicating import ReplicaProcess
from deployments.simulation.scenario import (
    ARRIVALS_S,
    FIRST_FINGERPRINT,
    LEASE_TTL_S,
    NUM_REQUESTS,
    RESUME_TIMEOUT_S,
    VOCAB_SIZE,
    draw_request,
    draw_scenario,
)
from deployments.simulation.timeline import Timeline
from deployments.simulation.tokens import Script
from specdec_core.messages import GroupLease, Role
from specdec_core.request import Request

_LONGEST_S = 60.0
"""(h) Maximum seconds until every request has ended; faults last for a few seconds."""
_QUIET_S = 1.2
"""Seconds after the last request by which nothing may be left. A silent replica is fenced
meanwhile."""
_REPEATS = 0.03
_NOT_READY = 0.1
"""Share of a target's rows that wait for their grammar, in worlds from `_FIRST_NOT_READY` on."""
_FIRST_NOT_READY = 50
"""The seeds before this one find the seeded defects of tests/mutants; their worlds must not
change."""
_STEP_S = 0.0001
"""Seconds per iteration of a coordinator's loop. Reading an answer, deciding and writing a lease
take some iterations. In all they take as long as a real coordinator is busy with one lease
(docs/simulation.md)."""
_FIRST_ARRIVAL_S = 0.05
_CANCELLED = 0.08
_SPOILT = 0.15
_COMES_BACK_S = (0.005, 0.3)


class Trial:
    """The world of one seed."""

    def __init__(
        self, seed: int, *, plan_faults: Callable[[Trial], None], traces: bool = False
    ) -> None:
        """`plan_faults` is called once, before anything happens."""
        self._plan_faults = plan_faults
        self.random = Random(seed)
        self._not_ready = _NOT_READY if seed >= _FIRST_NOT_READY else 0.0
        self.scenario = draw_scenario(self.random)
        self.replicas: dict[str, ReplicaProcess] = {}
        self.ingresses: list[IngressProcess] = []
        self.coordinators: list[CoordinatorProcess] = []
        """All coordinators, including those that have ended."""
        self.clients: dict[str, Client] = {}
        self._client_of_seed: dict[int, Client] = {}
        self._open: list[Client] = []
        """Clients that may still wait. `_is_quiet` removes those that have ended."""
        self.healed_at = 0.0
        """Time by which every fault so far is over."""
        self._num_replicas = self._num_ingresses = 0
        self._set_up(traces)

    @property
    def now(self) -> float:
        return self.timeline.now

    def run(self) -> None:
        """Run the world to its end. Raises Violation."""
        self._start()
        self._run_until(self._is_quiet, "requests wait")
        self._run_until(lambda: self._is_empty, "the scheduler still has work")
        deadline = self.now + _QUIET_S
        self._run_until(lambda: self.now >= deadline, "nothing happens")
        self._check_end()

    @property
    def coordinator(self) -> CoordinatorProcess:
        """The coordinator that new streams lead to."""
        return self.surroundings.coordinator

    def new_coordinator(self) -> CoordinatorProcess:
        """Replace the present coordinator with another process of the same version."""
        coordinator = self._make_coordinator()
        self.surroundings.coordinator = coordinator
        coordinator.start()
        return coordinator

    def new_version(self, fingerprint: str) -> None:
        """Start another version of the service, next to those that run."""
        coordinator = self._make_coordinator()
        self.surroundings = Surroundings(
            self.timeline,
            self.network,
            self.random,
            coordinator,
            silence_s=self.scenario.silence_s,
            fingerprint=fingerprint,
        )
        coordinator.start()
        for _ in range(self.scenario.num_targets):
            self.add_replica(Role.TARGET)
        for _ in range(self.scenario.num_drafts):
            self.add_replica(Role.DRAFT)
        for _ in range(self.scenario.num_ingresses):
            name = f"ingress-{self._num_ingresses}"
            self._num_ingresses += 1
            ingress = IngressProcess(self.surroundings, name, RESUME_TIMEOUT_S)
            self.ingresses.append(ingress)
            ingress.start()

    def add_replica(
        self, role: Role, *, fingerprint: str = "", world: Surroundings | None = None
    ) -> ReplicaProcess:
        """Start a new process with an ID that was never used before. It belongs to the present
        version unless `world` names another."""
        self._num_replicas += 1
        world = world or self.surroundings
        info = self.scenario.replica(
            f"{role}-{self._num_replicas}", role, fingerprint or world.fingerprint
        )
        runner = ModelReplica(
            info, self.scenario.agreement, FIRST_FINGERPRINT, not_ready=self._not_ready
        )
        process = ReplicaProcess(
            world,
            runner,
            self._step_seconds,
            repeats=_REPEATS,
            watcher=self.slot_checks,
        )
        self.replicas[info.replica_id] = process
        process.start()
        return process

    def remove_replica(self, process: ReplicaProcess) -> None:
        """End a replica for good."""
        process.is_draining = True
        if process.is_up:
            process.crash()
        self.replicas.pop(process.name, None)

    def of_role(self, role: Role) -> list[ReplicaProcess]:
        return [p for p in self.replicas.values() if p.runner.info.role is role and p.is_up]

    def served_by(self, role: Role) -> list[ReplicaProcess]:
        """Return the replicas of the present version."""
        return [p for p in self.of_role(role) if p.world is self.surroundings]

    def arrive(self) -> None:
        """Let a client send its request to some ingress."""
        request, is_invalid = draw_request(self.random, len(self.clients))
        client = Client(request, is_invalid, lambda: self.now)
        fingerprints = {FIRST_FINGERPRINT, self.surroundings.fingerprint}
        client.scripts = [Script(request, bits, VOCAB_SIZE) for bits in sorted(fingerprints)]
        self.clients[request.request_id] = client
        self._open.append(client)
        self._client_of_seed[request.params.seed] = client
        ingress = self.random.choice([i for i in self.ingresses if i.takes_requests])
        if not ingress.is_up:
            client.fail(ConnectionError("the ingress is not running"))
            return
        ingress.submit(client)
        if self.random.random() < _CANCELLED:
            delay = self.random.uniform(0.0, 0.3)
            self.timeline.at(self.now + delay, partial(self.cancel, ingress, client))

    def cancel(self, ingress: IngressProcess, client: Client) -> None:
        is_here = client.request.request_id in ingress.listeners
        if client.outcome is None and is_here and not ingress.is_stopped:
            self.record.fault("client_cancels", client.request.request_id)
            client.cancel()
            ingress.cancel(client.request.request_id)

    def come_back(self, client: Client) -> None:
        """Let a client whose ingress is dead resume at another one with its tokens. In a few cases
        one of them is wrong."""
        able = [i for i in self.ingresses if i.takes_requests and i.is_up]
        if not able:
            self.come_back_later(client)
            return
        brought = client.tokens.copy()
        if brought and self.random.random() < _SPOILT:
            index = self.random.randrange(len(brought))
            brought[index] = client.wrong_for(brought[index], VOCAB_SIZE)
        del self.clients[client.request.request_id]
        client.resume(tuple(brought))
        self.clients[client.request.request_id] = client
        self.random.choice(able).submit(client)

    def come_back_later(self, client: Client) -> None:
        self.later(self.random.uniform(*_COMES_BACK_S), partial(self.come_back, client))

    def new_fingerprint(self, fingerprint: str) -> None:
        """Give the targets of the present version that start from now on another fingerprint."""
        self.surroundings.fingerprint = fingerprint
        for client in self.clients.values():
            client.scripts.append(Script(client.request, fingerprint, VOCAB_SIZE))

    def later(self, delay: float, call: Callable[[], object]) -> None:
        """Plan a call that belongs to a fault, such as its end."""
        self.healed_at = max(self.healed_at, self.now + delay)
        self.timeline.at(self.now + delay, call)

    def _set_up(self, traces: bool) -> None:
        scenario = self.scenario
        self.timeline = Timeline(self.random)
        self.record = Record(lambda: self.timeline.now, traces=traces)
        delays = Delays(0.0001, 0.002)
        self.network = Network(self.timeline, self.random, delays, self.record)
        self.network.unacknowledged_s = 3 * scenario.silence_s
        self.patience = Patience(self.network, scenario.silence_s)
        window, group_wait_s = scenario.scheduler.window, scenario.scheduler.max_group_wait_s
        self._bounds = Bounds(row_wait_s=3.0 + 4 * LEASE_TTL_S + group_wait_s + 0.3 * window)
        self._kv_owners = KVOwners(self._scripts)
        self.slot_checks = SlotChecks(self._kv_owners)

    def _make_coordinator(self) -> CoordinatorProcess:
        invariants = Invariants(self.record, self._bounds, self._kv_owners, self.replicas)
        coordinator = CoordinatorProcess(
            self.timeline,
            self.network,
            f"coordinator-{len(self.coordinators)}",
            self.scenario.scheduler,
            new_epoch=lambda: self.random.getrandbits(64),
            inspector=invariants,
            audit_share=self.scenario.audit_share,
            silence_s=self.scenario.silence_s,
            step_s=_STEP_S,
        )
        self.coordinators.append(coordinator)
        return coordinator

    def _start(self) -> None:
        self.new_version(FIRST_FINGERPRINT)
        self._num_to_come = NUM_REQUESTS
        for _ in range(NUM_REQUESTS):
            time = self.random.uniform(_FIRST_ARRIVAL_S, ARRIVALS_S)
            self.timeline.at(time, self._arrive_as_planned)
        self._plan_faults(self)
        self._look()

    def _look(self) -> None:
        self.patience.look()
        self.timeline.at(self.now + self.patience.every_s, self._look)

    def _arrive_as_planned(self) -> None:
        self._num_to_come -= 1
        self.arrive()

    def _step_seconds(self, lease: GroupLease) -> float:
        if lease.role is Role.DRAFT:
            return self.scenario.draft_s * max(1, *[row.num_choices for row in lease.rows], 1)
        base, per_token = self.scenario.verify_s
        return base + per_token * sum(len(r.new_ids) + len(r.proposal) for r in lease.rows)

    def client_of(self, request: Request) -> Client:
        """Return the client of any attempt or audit replay, by its seed."""
        return self._client_of_seed[request.params.seed]

    def _scripts(self, request: Request) -> list[Script]:
        return self.client_of(request).scripts

    def _run_until(self, is_over: Callable[[], bool], trouble: str) -> None:
        if not self.timeline.run_until(is_over, self.now + _LONGEST_S):
            waiting = [key for key, c in self.clients.items() if c.outcome is None]
            raise Violation(f"(h) after {self.now:.1f} s {trouble}: {waiting}")

    def _is_quiet(self) -> bool:
        if self._num_to_come or self.timeline.now < self.healed_at:
            return False
        open_ = self._open
        while open_ and open_[-1].outcome is not None:
            open_.pop()
        return not open_

    @property
    def _is_empty(self) -> bool:
        drivers = [coordinator.driver for coordinator in self.coordinators if coordinator.is_up]
        return not any(d.scheduler.has_work or d.auditor.num_pending for d in drivers)

    def _check_end(self) -> None:
        """(g) Check that nothing is left of any request, nor of older versions."""
        driver = self.coordinator.driver
        scheduler = driver.scheduler
        left: dict[str, object] = {
            "coordinators": [c.name for c in self.coordinators if c.is_up][:-1],
            "open at an ingress": [
                i for i in self.ingresses if i.num_open or i.scheduler_client.open_requests()
            ],
            "replicas with blocks": [
                r.replica_id for r in scheduler._replicas.by_id.values() if r.num_reserved_blocks
            ],
            "replicas with slots": [p.name for p in self.replicas.values() if p.runner.slots],
            "a timer": scheduler.next_deadline(),
            "books": leftovers(driver),
        }
        found = {what: things for what, things in left.items() if things}
        if found:
            raise Violation(f"(g) at the end there are left: {found}")
        if any(c.driver.auditor.counts.diverged.total() for c in self.coordinators):
            raise Violation("(c) the service's own audit found other tokens")
        if any(i.num_divergences + i.scheduler_client.num_divergences for i in self.ingresses):
            raise Violation("(c) an ingress was told other tokens than before")
        for client in self.clients.values():
            self.record.outcomes[client.outcome or Outcome.DONE] += 1
