"""When Serve counts a replica as started: once its model is loaded, though the constructor does not
wait for that. Serve's calls are made here in its order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace

import pytest

from deployments.cli.wait_ready import refusal_in
from deployments.config.service import ServiceConfig
from deployments.coordinator.spec import CoordinatorSpec
from deployments.replica import model_host
from deployments.replica import replica as serving
from deployments.replica.replica import TargetReplica
from deployments.wire.endpoint import Endpoint
from specdec_core.config import SchedulerConfig
from specdec_core.errors import ModelNotSupportedError
from specdec_core.messages import Role
from tests.deployments.fake_replica import FakeReplica

SPEC = CoordinatorSpec(application="a", version="1", pool=SchedulerConfig())


class Target(TargetReplica):
    """Ended once, as Serve does it: Python would end it again."""

    def __del__(self) -> None:
        pass


class Loading:
    """A model that is loaded as soon as it may be, or cannot be."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.has_ended = False
        self.failure: Exception | None = None

    def __call__(
        self, config: ServiceConfig, role: Role, num_threads: int, tell: Callable[[str], None]
    ) -> object:
        tell("reading weights")  # without a Ray, too
        self.may_end.wait(timeout=10)
        self.has_ended = True
        if self.failure is not None:
            raise self.failure
        return SimpleNamespace(runner=FakeReplica(role), ranks=None)


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loading]:
    """There is no coordinator."""

    async def nowhere() -> Endpoint:
        raise ConnectionError("no coordinator")

    async def unheard(spec: CoordinatorSpec) -> None:
        pass

    async def nothing_begun(spec: CoordinatorSpec) -> dict[str, int]:
        return {}

    context = SimpleNamespace(replica_id=SimpleNamespace(unique_id="r1"))
    loading = Loading()
    monkeypatch.setattr(model_host, "host_model", loading)
    monkeypatch.setattr(serving, "Resolver", lambda spec: SimpleNamespace(resolve=nowhere))
    monkeypatch.setattr(serving, "tell_target_begins", unheard)
    monkeypatch.setattr(serving, "targets_begun", nothing_begun)
    monkeypatch.setattr(serving, "begin_replica_logs", lambda process, log_format: None)
    monkeypatch.setattr(serving.serve, "get_replica_context", lambda: context)
    yield loading
    loading.may_end.set()


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[TargetReplica]:
    replica = Target(ServiceConfig.of(model="demo", graceful_shutdown_s=0), SPEC)
    yield replica
    await TargetReplica.__del__(replica)


async def test_the_constructor_does_not_wait_for_the_model_and_the_first_health_check_does(
    loading: Loading,
) -> None:
    async with started() as replica:
        assert not loading.has_ended
        checks = [asyncio.create_task(replica.check_health()) for _ in range(2)]
        await asyncio.sleep(0)
        checks.pop().cancel()  # whoever no longer asks does not end it
        await asyncio.sleep(0.01)
        assert not checks[0].done()
        loading.may_end.set()
        await checks[0]
        assert loading.has_ended
        await replica.check_health()


async def test_a_model_that_cannot_be_loaded_fails_every_health_check_and_is_told_in_its_words(
    loading: Loading,
) -> None:
    loading.failure = ModelNotSupportedError("folder: no tokenizer")
    loading.may_end.set()
    async with started() as replica:
        for _ in range(2):
            with pytest.raises(ModelNotSupportedError) as failed:
                await replica.check_health()
            told = "".join(traceback.format_exception(failed.value))
            assert refusal_in(told) == "folder: no tokenizer"


async def test_one_that_is_ended_while_it_loads_does_not_go_on_to_work(loading: Loading) -> None:
    async with started() as replica:
        await asyncio.sleep(0)
    assert not loading.has_ended
    loading.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await replica.check_health()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_one_whose_lease_does_not_end_is_not_healthy(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading.may_end.set()
    async with started() as replica:
        await replica.check_health()
        monkeypatch.setattr(serving.WorkLoop, "is_stuck", True)
        with pytest.raises(RuntimeError, match="run for too long"):
            await replica.check_health()
