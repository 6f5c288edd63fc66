"""Faults of ingresses, of their streams and of the network, and what clients do."""

from __future__ import annotations

from functools import partial

from deployments.simulation.entering import IngressProcess
from deployments.simulation.faults.silent import wait_until_noticed
from deployments.simulation.trial import Trial

_FLOOD = 15
_MOST_LEAVE = 12


def crash_ingress(trial: Trial) -> str | None:
    up = [i for i in trial.ingresses if i.is_up and not i.world.is_retiring]
    if not up:
        return None
    ingress = trial.random.choice(up)
    _crash(trial, ingress)
    return ingress.name


def crash_and_resume(trial: Trial) -> str | None:
    """Crash an ingress; every client of it resumes with the tokens that it has."""
    able = [i for i in trial.ingresses if i.is_up and i.listeners]
    if not able:
        return None
    ingress = trial.random.choice(able)
    clients = [trial.clients[request_id] for request_id in ingress.listeners]
    for client in clients:
        client.comes_back = True
    _crash(trial, ingress)
    for client in clients:
        trial.come_back_later(client)
    return f"{ingress.name}: {len(clients)} clients"


def _crash(trial: Trial, ingress: IngressProcess) -> None:
    ingress.crash()
    trial.later(trial.random.uniform(0.05, 0.5), partial(_start_again, trial, ingress))


def _start_again(trial: Trial, ingress: IngressProcess) -> None:
    """Start the ingress again, unless its version has ended meanwhile."""
    if ingress in trial.ingresses and not ingress.is_up:
        ingress.start()


def hang_ingress(trial: Trial) -> str | None:
    able = [ingress for ingress in trial.ingresses if ingress.is_up and not ingress.is_stopped]
    if not able:
        return None
    ingress = trial.random.choice(able)
    ingress.stop()
    trial.later(trial.random.uniform(0.05, 0.8), ingress.go_on)
    return ingress.name


def _pick_connected(trial: Trial) -> IngressProcess | None:
    streams = [(i, i.stream) for i in trial.ingresses if not i.world.is_retiring]
    able = [ingress for ingress, stream in streams if stream is not None and stream.is_open]
    return trial.random.choice(able) if able else None


def cut_ingress(trial: Trial) -> str | None:
    ingress = _pick_connected(trial)
    if ingress is None or ingress.stream is None:
        return None
    ingress.stream.cut()
    return ingress.name


def silent_ingress(trial: Trial) -> str | None:
    """Silence an ingress's stream. The coordinator does not watch ingresses for silence; pings tell
    it about as late."""
    ingress = _pick_connected(trial)
    if ingress is None or ingress.stream is None:
        return None
    ingress.stream.fall_silent(trial.scenario.silence_s * trial.random.uniform(0.9, 1.3))
    wait_until_noticed(trial, ingress.stream)
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


def leave(trial: Trial) -> str | None:
    """Let many clients leave at the same time."""
    able = [ingress for ingress in trial.ingresses if ingress.is_up and not ingress.is_stopped]
    live = [(ingress, request_id) for ingress in able for request_id in ingress.listeners]
    if len(live) < 2:
        return None
    for ingress, request_id in live[:_MOST_LEAVE]:
        trial.cancel(ingress, trial.clients[request_id])
    return f"{len(live[:_MOST_LEAVE])} clients"
