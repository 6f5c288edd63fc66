"""The coordinator as a Ray actor: finds or creates it, serves it, ends it when its streams are
gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections import Counter
from functools import partial
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from deployments.autoscaling.signal_sampler import SignalSampler
from deployments.autoscaling.signals import SignalMeter
from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.node_placement import should_move
from deployments.coordinator.nodes import (
    chooses,
    entry_nodes,
    node_options,
    nodes_for,
    own_node,
    places_of,
)
from deployments.coordinator.server import process_settings, start_server
from deployments.coordinator.spec import NAMESPACE, CoordinatorSpec
from deployments.coordinator.status import pool_status
from deployments.names import Part
from deployments.observability.exporters import is_export_requested
from deployments.observability.logs import begin_logs
from deployments.observability.metrics.exporting import MetricsExporting
from deployments.observability.process import ProcessName
from deployments.observability.tracing.provider import begin_tracing
from deployments.runtime.garbage import is_look_short, look_seldom
from deployments.runtime.memory import keep_trimming
from deployments.wire.endpoint import Endpoint
from specdec_core.scheduler import Scheduler

logger = logging.getLogger(__name__)

_RESOLVE_TIMEOUT_S = 15.0
_HUNG_S = 10.0
"""Seconds after which a coordinator that has answered before counts as hung. It normally answers in
milliseconds, and Ray never restarts a hung actor itself."""
_SEND_S = 5.0
"""Maximum seconds for an ending coordinator to send its spans and metrics. The limit inside its
process is shorter."""
_LOOK_S = 5.0
"""Seconds between two checks of the nodes that the other cells' coordinators run on."""
_BETTER_LOOKS = 2
"""Number of consecutive checks that must prefer another node before the coordinator moves. A node
that has just joined or come back therefore has to be up at two checks."""
_ASKED_S = 5.0
_FAILED_EXIT_CODE = 70


class Coordinator:
    """One life of a coordinator: an epoch, a scheduler, a server. Undecorated; see
    `find_or_create`."""

    def __init__(self, spec: CoordinatorSpec) -> None:
        look_seldom()
        process = ProcessName(role=Part.COORDINATOR, id=spec.actor_name, cell=spec.cell)
        begin_logs(process, spec.log_format)
        self._tracing = begin_tracing(process)
        self.epoch = random.getrandbits(64)
        self._driver = SchedulerDriver(
            Scheduler(spec.pool, epoch=self.epoch),
            epoch=self.epoch,
            audit_share=spec.audit_share,
            limits=spec.limits,
            tracer=self._tracing.tracer,
            started_unix_s=time.time(),
        )
        self._sampler = SignalSampler(self._driver.scheduler.counters, SignalMeter())
        self._metrics = MetricsExporting(
            partial(pool_status, self._driver),
            process,
            model_name=spec.model_name,
            application=spec.application,
        )
        self._started = asyncio.ensure_future(
            start_server(
                self._driver,
                spec.host or _own_address(),
                tls=spec.tls,
                limits=spec.port_limits,
            )
        )
        self._tasks = [
            asyncio.ensure_future(self._drive()),
            asyncio.ensure_future(self._watch(spec.idle_exit_s)),
            asyncio.ensure_future(self._metrics.run()),
            asyncio.ensure_future(keep_trimming(is_calm=self._is_calm)),
        ]
        if chooses(spec):
            self._tasks.append(asyncio.ensure_future(self._keep_apart(spec)))
        self._targets_begun: Counter[str] = Counter()

    def _is_calm(self) -> bool:
        return is_look_short(self._driver.scheduler.num_live)

    async def endpoint(self) -> Endpoint:
        """Return the address of the gRPC server."""
        _, endpoint = await self._started
        return endpoint

    async def pid(self) -> int:
        return os.getpid()

    async def node_id(self) -> str:
        """Return the ID of the Ray node that the coordinator runs on."""
        return own_node()

    async def num_live(self) -> int:
        """Return the number of requests that have not ended."""
        return self._driver.scheduler.num_live

    async def target_begins(self, version: str) -> None:
        """Count a target of the cell that has been placed on a node and now loads its model."""
        self._targets_begun[version] += 1

    async def targets_begun(self) -> dict[str, int]:
        """Return the number of targets that began to load since this coordinator started, by
        version. The streams show which of them are up."""
        return self._targets_begun

    async def send_telemetry(self) -> None:
        """Send the remaining spans and metrics; no more are recorded after this."""
        await asyncio.gather(self._tracing.close(), self._metrics.close())

    async def signals(self) -> dict[str, float]:
        """Return the autoscaler's input; empty until there is an earlier sample to compare with."""
        signals = self._sampler.signals(time.monotonic())
        return signals.as_stats() if signals is not None else {}

    async def retire(self) -> None:
        """End for good; Ray does not restart an actor that exits on purpose."""
        await self.send_telemetry()
        ray.actor.exit_actor()

    async def _drive(self) -> None:
        """Run the scheduler. If it fails, every client has been told, and the process exits. Ray
        then starts a new process with a new epoch."""
        try:
            await asyncio.create_task(self._driver.run())  # which resumes this task only once
        except Exception:
            await asyncio.gather(asyncio.sleep(0.5), self.send_telemetry())  # the last messages
            os._exit(_FAILED_EXIT_CODE)

    async def _watch(self, idle_exit_s: float) -> None:
        while (idle_s := self._driver.idle_s()) < idle_exit_s:
            await asyncio.sleep(idle_exit_s - idle_s)
        logger.info("no ingress and no replica for %.0f s; the coordinator exits", idle_s)
        ray.get_runtime_context().current_actor.retire.remote()

    async def _keep_apart(self, spec: CoordinatorSpec) -> None:
        """Retire the coordinator once `should_move` prefers another node, so that it is created
        again there. Another node is better if it has fewer coordinators of other cells. With as few
        of them, it is better if it has an ingress and this node has none."""
        num_better = 0
        while num_better < _BETTER_LOOKS:
            await asyncio.sleep(_LOOK_S)
            is_better = await asyncio.to_thread(_is_better_elsewhere, spec)
            num_better = num_better + 1 if is_better else 0
        logger.info(
            "moving the coordinator of cell %d to a better node, with an ingress or "
            "fewer coordinators; its streams pause for some seconds",
            spec.cell,
        )
        ray.get_runtime_context().current_actor.retire.remote()


def _is_better_elsewhere(spec: CoordinatorSpec) -> bool:
    """Return False while the node of another cell's coordinator is unknown."""
    try:
        others, nodes, entries = places_of(spec.others), nodes_for(spec), entry_nodes()
    except RayError:
        return False
    is_known = len(others) == len(spec.others)
    return is_known and should_move(spec.cell, own_node(), nodes, others, entries)


def find_or_create(spec: CoordinatorSpec) -> ActorHandle[Any]:
    """Return the coordinator's handle; the first caller creates the actor."""
    with contextlib.suppress(ValueError):
        found: ActorHandle[Any] = ray.get_actor(spec.actor_name, namespace=NAMESPACE)
        return found
    actor: Any = ray.remote(Coordinator).options(
        name=spec.actor_name,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=1000,
        num_cpus=0,
        runtime_env={"env_vars": process_settings()},
        **node_options(spec),
    )
    handle: ActorHandle[Any] = actor.remote(spec)
    return handle


def _own_address() -> str:
    address: str = ray.util.get_node_ip_address()
    return address


class Resolver:
    """Finds the address of one coordinator's server, and has Ray restart one that hangs."""

    def __init__(self, spec: CoordinatorSpec) -> None:
        self._spec = spec
        self._answered: ActorHandle[Any] | None = None
        """The coordinator, if it answered the last call. Only then does silence count as a hang. A
        coordinator that is created again after the old one exited has another handle, and gets the
        full time."""

    async def resolve(self) -> Endpoint:
        """Return the address. Raises ConnectionError while there is no coordinator."""
        answered, self._answered = self._answered, None
        is_known = False
        try:
            handle = await asyncio.to_thread(find_or_create, self._spec)
            is_known = answered == handle
            async with asyncio.timeout(_HUNG_S if is_known else _RESOLVE_TIMEOUT_S):
                endpoint: Endpoint = await handle.endpoint.remote()
        except (RayError, asyncio.InvalidStateError, TimeoutError, ValueError) as error:
            if is_known and isinstance(error, TimeoutError):
                await asyncio.to_thread(_restart, self._spec)
            raise ConnectionError(
                f"cannot reach the coordinator: {type(error).__name__}"
            ) from error
        self._answered = handle
        return endpoint


def _restart(spec: CoordinatorSpec) -> None:
    """Let Ray replace a hung coordinator with a new process. Other callers that wait for it get an
    error immediately."""
    logger.warning("%s does not answer; restarting it", spec.actor_name)
    with contextlib.suppress(ValueError):
        ray.kill(ray.get_actor(spec.actor_name, namespace=NAMESPACE), no_restart=False)


def num_live(spec: CoordinatorSpec) -> int:
    """Return the number of requests that have not ended; 0 when there is no coordinator to ask."""
    try:
        handle: Any = ray.get_actor(spec.actor_name, namespace=NAMESPACE)
        live: int = ray.get(handle.num_live.remote(), timeout=_RESOLVE_TIMEOUT_S)
    except (RayError, ValueError):
        return 0
    return live


async def signals_of(spec: CoordinatorSpec) -> dict[str, float]:
    """Return the coordinator's autoscaling signals; empty when there is none to ask."""
    signals: dict[str, float] | None = await _asked(spec, "signals")
    return signals or {}


async def targets_begun(spec: CoordinatorSpec) -> dict[str, int]:
    """Return the number of the cell's targets that have begun to load, by version, as far as its
    coordinator has heard."""
    begun: dict[str, int] | None = await _asked(spec, "targets_begun")
    return begun or {}


async def tell_target_begins(spec: CoordinatorSpec) -> None:
    """Tell the coordinator, and those of other versions, whose targets stay until this one is up.

    A lost message changes little, because the waiting processes also have a time limit.
    """
    with contextlib.suppress(Exception):
        for handle in await asyncio.to_thread(_of_all_versions, spec):
            handle.target_begins.remote(spec.version)


def _of_all_versions(spec: CoordinatorSpec) -> list[Any]:
    """Return the coordinator's handle, and those of the coordinators that it replaces."""
    handles: list[Any] = [find_or_create(spec)]
    for named in ray.util.list_named_actors(all_namespaces=True):
        is_ours = named["namespace"] == NAMESPACE and named["name"].startswith(spec.cell_name)
        if is_ours and named["name"] != spec.actor_name:
            with contextlib.suppress(ValueError):
                handles.append(ray.get_actor(named["name"], namespace=NAMESPACE))
    return handles


async def _asked(spec: CoordinatorSpec, method: str) -> Any:
    """Return the coordinator's answer to `method`; None when there is none to ask."""
    try:
        handle: Any = await asyncio.to_thread(ray.get_actor, spec.actor_name, NAMESPACE)
        async with asyncio.timeout(_ASKED_S):
            return await getattr(handle, method).remote()
    except (RayError, ValueError, asyncio.InvalidStateError, TimeoutError):
        return None


def end(spec: CoordinatorSpec) -> None:
    """Kill the coordinator if it exists, once it has sent its spans and metrics."""
    try:
        handle: Any = ray.get_actor(spec.actor_name, namespace=NAMESPACE)
    except ValueError:
        return
    if is_export_requested():
        with contextlib.suppress(RayError):
            ray.get(handle.send_telemetry.remote(), timeout=_SEND_S)
    ray.kill(handle, no_restart=True)
