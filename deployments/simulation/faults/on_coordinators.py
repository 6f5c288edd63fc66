"""Faults of the coordinator, and versions of the service that take over from each other."""

from __future__ import annotations

from functools import partial

from deployments.simulation.coordinating import CoordinatorProcess
from deployments.simulation.entering import IngressProcess
from deployments.simulation.peer import Surroundings
from deployments.simulation.replicating import ReplicaProcess
from deployments.simulation.trial import Trial
from specdec_core.messages import Role

_POLL_S = 0.1
_DRAIN_BUDGET_S = 1.0
_ASKED_S = 0.3
"""Seconds within which Serve asks all replicas of a version to leave."""
_DIES_AS_WELL = 0.3
"""Share of redeploys in which the old coordinator dies meanwhile."""
_ROUTED_S = 1.0
"""Seconds after a redeploy until the last replica of the old version hears of it. For as long after
that, its ingresses may still be sent requests."""


def crash_coordinator(trial: Trial) -> str | None:
    coordinator = trial.coordinator
    if not coordinator.is_up:
        return None
    coordinator.crash()
    is_long = trial.random.random() < 0.15
    delay = trial.random.uniform(1.8, 2.5) if is_long else trial.random.uniform(0.05, 0.8)
    trial.later(delay, coordinator.start)
    return coordinator.name


def hang_coordinator(trial: Trial) -> str | None:
    coordinator = trial.coordinator
    if not coordinator.is_up or coordinator.is_stopped:
        return None
    coordinator.stop()
    trial.later(trial.random.uniform(0.05, 1.0), coordinator.go_on)
    return coordinator.name


def supersede(trial: Trial) -> str | None:
    """Let the coordinator hang while Ray creates another one, which some processes find. Then it
    continues, and both exist."""
    old = trial.coordinator
    if not old.is_up or old.is_stopped:
        return None
    old.stop()
    trial.later(trial.random.uniform(0.05, 0.5), partial(_take_over, trial, old))
    return old.name


def _take_over(trial: Trial, old: CoordinatorProcess) -> None:
    if old is not trial.coordinator:
        old.go_on()
    if not old.is_stopped:
        return  # it is another version's by now, or died or continued before its hang was seen
    trial.new_coordinator()
    for stream in [one for one in trial.network.streams if one.server is old]:
        if trial.random.random() < 0.5:
            stream.cut()
    goes_on = trial.random.uniform(0.05, 0.6)
    trial.later(goes_on, old.go_on)
    trial.later(goes_on + trial.random.uniform(0.1, 0.8), old.crash)


def redeploy(trial: Trial) -> str | None:
    """Start another version next to this one, which serves the requests that it has begun and then
    ends."""
    old = trial.surroundings
    if not old.coordinator.is_up:
        return None
    trial.new_version(old.fingerprint)
    trial.later(trial.random.uniform(_POLL_S, _ROUTED_S), partial(_retire, trial, old))
    return old.coordinator.name


def _retire(trial: Trial, old: Surroundings) -> None:
    """Ask all processes of the old version to leave, as Serve does. Replicas hear it first, because
    requests may still be routed to an ingress. A process that fails at that time would end only
    after Serve's drain time, so this waits until all are well. From then on one fault alone strikes
    the version: its coordinator may die, and Ray starts it again."""
    ingresses = [ingress for ingress in trial.ingresses if ingress.world is old]
    replicas = [process for process in trial.replicas.values() if process.world is old]
    if not _is_well(old, ingresses, replicas):
        trial.later(_POLL_S, partial(_retire, trial, old))
        return
    old.is_retiring = True
    for process in replicas:
        if process.is_up and not process.is_draining:
            trial.later(trial.random.uniform(0.0, _ASKED_S), partial(_ask_to_leave, process))
        else:
            process.is_draining = True
    if trial.random.random() < _DIES_AS_WELL:
        dies_s = trial.random.uniform(0.0, _ROUTED_S)
        trial.later(dies_s, old.coordinator.crash)
        trial.later(dies_s + trial.random.uniform(0.05, 0.5), old.coordinator.start)
    for ingress in ingresses:
        trial.later(trial.random.uniform(0.0, _ROUTED_S), ingress.stop_taking)
    trial.later(_ROUTED_S, partial(_end_idle, trial, old))


def _ask_to_leave(process: ReplicaProcess) -> None:
    if process.is_up and not process.is_draining:
        process.drain()


def _is_well(
    old: Surroundings, ingresses: list[IngressProcess], replicas: list[ReplicaProcess]
) -> bool:
    """Return True if the version's ingresses and targets are connected to a coordinator that
    answers."""
    targets = [p for p in replicas if p.runner.info.role is Role.TARGET and not p.is_draining]
    connected = all(process.is_connected for process in (*ingresses, *targets))
    return bool(targets) and connected and not old.coordinator.is_stopped


def _end_idle(trial: Trial, old: Surroundings) -> None:
    """End the old version: ingresses when their last request has ended, then replicas, the
    coordinator last."""
    ingresses = [ingress for ingress in trial.ingresses if ingress.world is old]
    for ingress in ingresses:
        if not (ingress.is_stopped or ingress.num_open):
            trial.ingresses.remove(ingress)
            ingress.crash()
    if any(ingress in trial.ingresses for ingress in ingresses):
        trial.later(_POLL_S, partial(_end_idle, trial, old))
    else:
        trial.later(_DRAIN_BUDGET_S, partial(_end, trial, old))


def _end(trial: Trial, old: Surroundings) -> None:
    for process in [p for p in trial.replicas.values() if p.world is old]:
        trial.remove_replica(process)
    if old.coordinator.is_up:
        old.coordinator.crash()
