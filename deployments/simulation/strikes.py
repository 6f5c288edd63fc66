"""How each fault is done to a world, and when it is over again: within a few seconds.

Each returns whom it struck, or None where there is nothing that it could strike at present.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from deployments.simulation.ingress_process import IngressProcess
from deployments.simulation.replica_process import ReplicaProcess
from specdec_core.leases import Role

if TYPE_CHECKING:
    from deployments.simulation.trial import Trial

_DRAIN_BUDGET_S = 1.0
_FLOOD = 15


def _restart(trial: Trial, process: ReplicaProcess, delay: float) -> None:
    """The same id comes back empty, unless another process has taken its place meanwhile."""

    def start() -> None:
        if not process.is_up and not process.is_leaving:
            process.start()

    trial.later(delay, start)


def _pick(trial: Trial, role: Role | None = None) -> ReplicaProcess | None:
    """A replica that serves."""
    able = [
        process
        for process in trial.replicas.values()
        if process.is_up
        and process.is_registered
        and not process.is_stopped
        and not process.is_leaving
        and role in (None, process.runner.info.role)
    ]
    return trial.random.choice(able) if able else None


def crash(role: Role, trial: Trial) -> str | None:
    process = _pick(trial, role)
    if process is None:
        return None
    process.crash()
    _restart(trial, process, trial.random.uniform(0.02, 1.0))
    return process.name


def hang(role: Role, trial: Trial) -> str | None:
    process = _pick(trial, role)
    if process is None:
        return None
    process.stop()
    trial.later(trial.random.uniform(0.05, 1.2), process.go_on)
    return process.name


def drain(role: Role, trial: Trial) -> str | None:
    process = _pick(trial, role)
    if process is None:
        return None
    _replace(trial, process)
    return process.name


def _replace(trial: Trial, process: ReplicaProcess) -> None:
    """Drain it within a budget; another one takes its place at once, as in a rolling update."""
    process.drain()

    def end() -> None:
        if process.is_up:
            process.crash()
        del trial.replicas[process.name]

    trial.add_replica(process.runner.info.role)
    trial.later(_DRAIN_BUDGET_S, end)


def replace_targets(trial: Trial) -> str | None:
    """One by one, by targets of other bits."""
    targets = [p for p in trial.of_role(Role.TARGET) if not p.is_leaving and p.is_registered]
    if len(targets) < 2:
        return None
    trial.new_fingerprint("bits-2")
    for place, process in enumerate(targets):
        trial.later(0.1 + 0.3 * place, partial(_replace_if_there, trial, process))
    return "all"


def _replace_if_there(trial: Trial, process: ReplicaProcess) -> None:
    if process.name in trial.replicas and not process.is_leaving:
        if not process.is_up:
            process.start()
        _replace(trial, process)


def all_drafts_crash(trial: Trial) -> str | None:
    drafts = [p for p in trial.of_role(Role.DRAFT) if not p.is_leaving]
    if not drafts:
        return None
    delay = trial.random.uniform(0.3, 1.5)
    for process in drafts:
        process.crash()
        _restart(trial, process, delay)
    return "all"


def slow_replica(trial: Trial) -> str | None:
    process = _pick(trial)
    if process is None:
        return None
    process.slowness = trial.random.uniform(2.0, 12.0)
    trial.later(trial.random.uniform(0.2, 1.0), lambda: setattr(process, "slowness", 1.0))
    return process.name


def lose_kv(trial: Trial) -> str | None:
    """A slot forgets its end, or all."""
    process = _pick(trial)
    slots = process.runner.slots if process is not None else {}
    if process is None or not slots:
        return None
    sequence_id = trial.random.choice(list(slots))
    kept = trial.random.randint(0, slots[sequence_id].cached_len)
    process.runner.lose(sequence_id, kept)
    return f"{process.name} keeps {kept} of {sequence_id}"


def foreign(trial: Trial) -> str | None:
    """It gives up at once, so that it never finds itself alone."""
    if _pick(trial, Role.TARGET) is None:
        return None
    process = trial.add_replica(Role.TARGET, "other-bits")
    for client in trial.clients.values():
        client.meets_foreign = True
    process.is_leaving = True

    def end() -> None:
        process.crash()
        del trial.replicas[process.name]

    trial.later(0.004, end)
    return process.name


def row_fails(trial: Trial) -> str | None:
    process = _pick(trial)
    driver = trial.coordinator.driver
    record = driver.pool._fleet.get(process.name) if process is not None else None
    if process is None or record is None or not trial.coordinator.is_up:
        return None
    sequences = [s for s in record.sequences.values() if s.sequence_id in process.runner.slots]
    if not sequences:
        return None
    sequence = trial.random.choice(sequences)
    process.runner.failing.add(sequence.sequence_id)
    if record.role is Role.TARGET and not sequence.is_background:
        trial.clients[sequence.request_id].may_fail = True
    return f"{process.name}: {sequence.sequence_id}"


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


def crash_ingress(trial: Trial) -> str | None:
    up = [ingress for ingress in trial.ingresses if ingress.is_up]
    if not up:
        return None
    ingress = trial.random.choice(up)
    ingress.crash()
    trial.later(trial.random.uniform(0.05, 0.5), ingress.start)
    return ingress.name


def hang_ingress(trial: Trial) -> str | None:
    able = [ingress for ingress in trial.ingresses if ingress.is_up and not ingress.is_stopped]
    if not able:
        return None
    ingress = trial.random.choice(able)
    ingress.stop()
    trial.later(trial.random.uniform(0.05, 0.8), ingress.go_on)
    return ingress.name


def cut_work(trial: Trial) -> str | None:
    process = _pick(trial)
    if process is None or process.stream is None or not process.stream.is_open:
        return None
    process.stream.cut()
    return process.name


def _pick_connected(trial: Trial) -> IngressProcess | None:
    able = [i for i in trial.ingresses if i.stream is not None and i.stream.is_open]
    return trial.random.choice(able) if able else None


def cut_ingress(trial: Trial) -> str | None:
    ingress = _pick_connected(trial)
    if ingress is None or ingress.stream is None:
        return None
    ingress.stream.cut()
    return ingress.name


def lose_news(trial: Trial) -> str | None:
    ingress = _pick_connected(trial)
    if ingress is None or ingress.stream is None:
        return None
    ingress.stream.loses_next = True
    return ingress.name


def repeat_news(trial: Trial) -> str | None:
    ingress = _pick_connected(trial)
    if ingress is None or ingress.stream is None:
        return None
    ingress.stream.repeats_next = True
    return ingress.name


def slow_network(trial: Trial) -> str | None:
    trial.network.delays.factor = trial.random.uniform(5.0, 60.0)
    trial.later(
        trial.random.uniform(0.1, 0.5), lambda: setattr(trial.network.delays, "factor", 1.0)
    )
    return "all"


def flood(trial: Trial) -> str | None:
    for _ in range(_FLOOD):
        trial.arrive()
    return f"{_FLOOD} requests"
