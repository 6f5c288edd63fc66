"""Faults of targets and drafts, of their streams and of their KV cache."""

from __future__ import annotations

from functools import partial

from deployments.simulation.faults.silent import wait_until_noticed
from deployments.simulation.replicating import ReplicaProcess
from deployments.simulation.trial import Trial
from specdec_core.messages import Role

_DRAIN_BUDGET_S = 1.0
_CRASHES_AGAIN = 3


def _restart(trial: Trial, process: ReplicaProcess, delay: float) -> None:
    """Start the same ID again, empty, unless another process has replaced it meanwhile."""

    def start() -> None:
        if not process.is_up and not process.is_draining:
            process.start()

    trial.later(delay, start)


def _pick(trial: Trial, role: Role | None = None) -> ReplicaProcess | None:
    """Return a random replica that serves."""
    able = [
        process
        for process in trial.replicas.values()
        if process.is_up
        and process.is_registered
        and not process.is_stopped
        and not process.is_draining
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
    """Drain a replica within a budget. Another one replaces it immediately, as in a rolling
    update."""
    process.drain()
    trial.add_replica(process.runner.info.role, world=process.world)
    trial.later(_DRAIN_BUDGET_S, partial(trial.remove_replica, process))


def replace_targets(trial: Trial) -> str | None:
    """Replace the targets one by one, by targets with another fingerprint."""
    targets = [p for p in trial.served_by(Role.TARGET) if not p.is_draining and p.is_registered]
    if len(targets) < 2:
        return None
    trial.new_fingerprint("bits-2")
    for index, process in enumerate(targets):
        trial.later(0.1 + 0.3 * index, partial(_replace_if_there, trial, process))
    return "all"


def restart_all(trial: Trial) -> str | None:
    """Replace all targets and drafts one by one."""
    able = [p for role in Role for p in trial.served_by(role) if not p.is_draining]
    for index, process in enumerate(able):
        trial.later(0.05 + 0.15 * index, partial(_replace_if_there, trial, process))
    return "all" if able else None


def crash_again(trial: Trial) -> str | None:
    """Crash a replica several times, each time soon after it has come back."""
    process = _pick(trial)
    if process is None:
        return None
    for index in range(_CRASHES_AGAIN):
        trial.later(0.15 * index, partial(_crash_if_up, trial, process))
    return process.name


def _crash_if_up(trial: Trial, process: ReplicaProcess) -> None:
    if process.is_up and not process.is_draining:
        process.crash()
        _restart(trial, process, 0.03)


def wrong_clock(trial: Trial) -> str | None:
    """Let a replica's clock run slower or faster than the others'."""
    process = _pick(trial)
    if process is None:
        return None
    process.clock_rate = trial.random.choice((0.1, 0.5, 3.0, 20.0))
    process.had_wrong_clock = True
    trial.later(trial.random.uniform(0.5, 2.0), lambda: setattr(process, "clock_rate", 1.0))
    return f"{process.name} by {process.clock_rate}"


def _replace_if_there(trial: Trial, process: ReplicaProcess) -> None:
    if trial.replicas.get(process.name) is process and not process.is_draining:
        if not process.is_up:
            process.start()
        _replace(trial, process)


def all_drafts_crash(trial: Trial) -> str | None:
    drafts = [p for p in trial.of_role(Role.DRAFT) if not p.is_draining]
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
    """Make a slot forget its end, or everything."""
    process = _pick(trial)
    slots = process.runner.slots if process is not None else {}
    if process is None or not slots:
        return None
    sequence_id = trial.random.choice(list(slots))
    kept = trial.random.randint(0, slots[sequence_id].cached_len)
    process.runner.lose(sequence_id, kept)
    return f"{process.name} keeps {kept} of {sequence_id}"


def nonsense(trial: Trial) -> str | None:
    process = _pick(trial)
    if process is None:
        return None
    process.garbles_next = True
    return process.name


def foreign(trial: Trial) -> str | None:
    """Register a target with another fingerprint. It leaves after 4 ms, so that it is never the
    only target."""
    if _pick(trial, Role.TARGET) is None:
        return None
    process = trial.add_replica(Role.TARGET, fingerprint="other-bits")
    for client in trial.clients.values():
        client.meets_foreign = True
    process.is_draining = True
    trial.later(0.004, partial(trial.remove_replica, process))
    return process.name


def row_fails(trial: Trial) -> str | None:
    process = _pick(trial)
    driver = trial.coordinator.driver
    record = driver.scheduler._replicas.by_id.get(process.name) if process is not None else None
    if process is None or record is None or not trial.coordinator.is_up:
        return None
    if record.info.incarnation != process.runner.info.incarnation:
        return None
    sequences = [s for s in record.sequences.values() if s.sequence_id in process.runner.slots]
    if not sequences:
        return None
    sequence = trial.random.choice(sequences)
    process.runner.failing.add(sequence.sequence_id)
    if record.role is Role.TARGET and not sequence.is_background:
        trial.client_of(sequence.request).may_fail = True
    return f"{process.name}: {sequence.sequence_id}"


def cut_work(trial: Trial) -> str | None:
    process = _pick(trial)
    if process is None or process.stream is None or not process.stream.is_open:
        return None
    process.stream.cut()
    return process.name


def silent_work(trial: Trial) -> str | None:
    """Silence a replica's stream. Each end finds out independently."""
    process = _pick(trial)
    if process is None or process.stream is None or not process.stream.is_open:
        return None
    process.stream.fall_silent()
    wait_until_noticed(trial, process.stream)
    return process.name
