"""Asking Ray for the coordinator: one that hangs is restarted, one that starts slowly is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError

from deployments.coordinator import actor as coordinator
from deployments.coordinator.actor import Resolver
from deployments.coordinator.spec import CoordinatorSpec
from deployments.wire.endpoint import Endpoint
from specdec_core.config import SchedulerConfig

SPEC = CoordinatorSpec(application="a", version="1", pool=SchedulerConfig())
HERE = Endpoint(address="127.0.0.1:1", token="t")

Answer = Callable[[], Awaitable[Endpoint]]


async def answers() -> Endpoint:
    return HERE


async def hangs() -> Endpoint:
    await asyncio.sleep(60)
    return HERE


async def restarts() -> Endpoint:
    raise ActorUnavailableError("it restarts", b"0" * 16)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which actors were killed, and whether for good."""
    found: list[Any] = []
    monkeypatch.setattr(coordinator, "_HUNG_S", 0.05)
    monkeypatch.setattr(coordinator, "_RESOLVE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(coordinator.ray, "get_actor", lambda name, namespace: name)
    monkeypatch.setattr(
        coordinator.ray, "kill", lambda actor, no_restart: found.append((actor, no_restart))
    )
    return found


class Handle(SimpleNamespace):
    """One actor's, as Ray compares them: by the actor's id."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id


def ask(
    monkeypatch: pytest.MonkeyPatch, resolver: Resolver, *course: Answer, actor_id: str = "first"
) -> None:
    """Resolve once for each answer; what fails is a ConnectionError."""
    for answer in course:
        handle = Handle(id=actor_id, endpoint=SimpleNamespace(remote=answer))
        monkeypatch.setattr(coordinator, "find_or_create", lambda spec, handle=handle: handle)
        if answer is answers:
            assert asyncio.run(resolver.resolve()) == HERE
        else:
            with pytest.raises(ConnectionError):
                asyncio.run(resolver.resolve())


@pytest.mark.parametrize(
    ("course", "num_kills"),
    [
        ((hangs, hangs), 0),
        ((answers, hangs), 1),
        ((answers, hangs, hangs, hangs), 1),
        ((answers, restarts, hangs), 0),
        ((answers, hangs, answers, hangs), 2),
    ],
)
def test_only_who_has_answered_last_time_is_taken_for_hung(
    monkeypatch: pytest.MonkeyPatch, killed: list[Any], course: tuple[Answer, ...], num_kills: int
) -> None:
    ask(monkeypatch, Resolver(SPEC), *course)
    assert killed == [(SPEC.actor_name, False)] * num_kills


def test_who_is_created_after_the_known_one_ended_itself_has_the_time_of_a_start(
    monkeypatch: pytest.MonkeyPatch, killed: list[Any]
) -> None:
    resolver = Resolver(SPEC)
    ask(monkeypatch, resolver, answers)
    ask(monkeypatch, resolver, hangs, hangs, answers, actor_id="second")
    assert killed == []
    ask(monkeypatch, resolver, hangs, actor_id="second")
    assert killed == [(SPEC.actor_name, False)]


@pytest.mark.parametrize("said", [None, "", "-another"])
def test_the_coordinators_process_waits_in_one_thread_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    if said is not None:
        monkeypatch.setenv("GRPC_EXPERIMENTS", said)
    asked: dict[str, Any] = {}

    def options(**given: Any) -> SimpleNamespace:
        asked.update(given)
        return SimpleNamespace(remote=lambda spec: None)

    def there_is_none(name: str, namespace: str) -> None:
        raise ValueError

    monkeypatch.setattr(coordinator.ray, "get_actor", there_is_none)  # else it starts a Ray
    monkeypatch.setattr(coordinator.ray, "remote", lambda _: SimpleNamespace(options=options))
    coordinator.find_or_create(SPEC)
    told = asked["runtime_env"]["env_vars"]["GRPC_EXPERIMENTS"]
    expected = "-event_engine_client,-event_engine_listener" if said is None else said
    assert told == expected
