"""An observer of a coordinator sees each request begin and end once, and can harm no answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from deployments.config.client_limits import ClientLimits
from deployments.coordinator.connections import ConnectedReplica
from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.status import pool_status
from deployments.errors import Failure
from deployments.observability.request_observer import LiveRequest, RequestEnd, RequestObserver
from specdec_core.config import SchedulerConfig
from specdec_core.messages import LeaseRow, Role, RowResult, RowStatus
from specdec_core.request import Request, TokenEvent
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler, SendLease
from tests.deployments.fake_replica import FakeReplica, continuation
from tests.deployments.outboxes import taken, told

PROMPT = (1, 2, 3)
TOKENS = continuation(PROMPT, 6)


class Journal(RequestObserver):
    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def begin(self, live: LiveRequest) -> None:
        self.lines.append((live.request.request_id, "begin"))

    def event(self, live: LiveRequest, event: TokenEvent, now: float) -> None:
        self.lines.append((live.request.request_id, event.index, event.token_ids))

    def end(self, live: LiveRequest, end: RequestEnd) -> None:
        how = end.reason if end.event is None else end.event.finish_reason
        self.lines.append((live.request.request_id, "end", how))

    def refused(self, request_id: str, failure: Failure) -> None:
        self.lines.append((request_id, "refused", failure.kind))


class Broken(FakeReplica):
    """Every row fails."""

    def _run(self, row: LeaseRow) -> RowResult:
        return RowResult(sequence_id=row.sequence_id, status=RowStatus.FAILED, error="it broke")


class World:
    """A coordinator without streams, whose replicas answer when they are told to."""

    def __init__(self, *first: RequestObserver) -> None:
        self.journal = Journal()
        self.now = 1.0
        self.driver = SchedulerDriver(
            Scheduler(SchedulerConfig(max_queued=2), epoch=1),
            epoch=1,
            audit_share=1.0,
            limits=ClientLimits(max_concurrent=2),
            observers=(*first, self.journal),
            clock=lambda: self.now,
        )
        self.ingress = self.driver.attach()
        self._targets: dict[str, tuple[FakeReplica, ConnectedReplica]] = {}

    def target(self, name: str = "t0", fake: FakeReplica | None = None) -> ConnectedReplica:
        fake = fake or FakeReplica(Role.TARGET)
        replica = self.driver.register(fake.info(name, 1))
        self._targets[name] = fake, replica
        return replica

    def submit(self, name: str = "a", *, resume: bool = False, **fields: Any) -> None:
        params = SamplingParams(max_tokens=len(TOKENS))
        request = Request(request_id=name, prompt_token_ids=PROMPT, params=params, **fields)
        self.driver.submit(self.ingress, request, resume=resume)

    def round(self) -> None:
        """Let the pool decide, and all replicas answer."""
        self.driver.decide()
        for fake, replica in self._targets.values():
            while replica.outbox.has_items() and not replica.outbox.is_closed:
                for command in taken(replica.outbox) or []:
                    if isinstance(command, SendLease):
                        result = fake.execute(command.lease)
                        self.driver.on_result(replica, result, replica.occupancy)

    def rounds(self, number: int = 20) -> None:
        for _ in range(number):
            self.round()

    def fail(self) -> None:
        def advance(now: float) -> None:
            raise RuntimeError("a defect")

        self.driver.scheduler.advance = advance  # type: ignore[method-assign,assignment]
        with pytest.raises(RuntimeError, match="a defect"):
            asyncio.run(self.driver.run())


def length(world: World) -> None:
    world.target()
    world.submit()
    world.rounds()


def stop(world: World) -> None:
    world.target()
    world.submit(end_token_ids=frozenset(TOKENS[2:3]))
    world.rounds()


def cancelled(world: World) -> None:
    world.target()
    world.submit()
    world.rounds(3)
    world.driver.abort(world.ingress, "a")
    world.rounds()


def cancelled_in_the_queue(world: World) -> None:
    world.submit()
    world.driver.abort(world.ingress, "a")
    world.rounds()


def ingress_lost(world: World) -> None:
    world.target()
    world.submit()
    world.rounds(3)
    world.driver.detach(world.ingress)
    world.rounds()


def submitted_again(world: World) -> None:
    world.target()
    world.submit()
    world.rounds(3)
    world.submit(resume=True, emitted_token_ids=tuple(TOKENS[:1]))
    world.rounds()


def submitted_again_with_nothing_left(world: World) -> None:
    world.submit(resume=True, emitted_token_ids=tuple(TOKENS))
    world.rounds()


def refused_by_quota(world: World) -> None:
    for name in "abc":
        world.submit(name, client="ada")
    world.target()
    world.rounds()


def refused_by_the_queue(world: World) -> None:
    for name in "abc":
        world.submit(name)
    world.target()
    world.rounds()


def refused_as_in_use(world: World) -> None:
    world.target()
    world.submit()
    world.submit()
    world.rounds()


def too_late(world: World) -> None:
    world.submit(timeout_s=2.0)
    world.round()
    world.now = 4.0
    world.rounds()


def row_failed(world: World) -> None:
    world.target(fake=Broken(Role.TARGET))
    world.submit()
    world.rounds()


def replica_failed(world: World) -> None:
    first = world.target("t0")
    world.submit()
    world.rounds(3)
    world.target("t1")
    world.driver.leave(first)
    world.rounds()


def replica_drained(world: World) -> None:
    first = world.target("t0")
    world.submit()
    world.rounds(3)
    second = world.target("t1")
    world.driver.drain(first)
    world.driver.on_heartbeat(second, second.occupancy)
    world.rounds()
    assert first.may_leave


def scheduler_failed(world: World) -> None:
    world.submit("a")
    world.submit("b")
    world.fail()
    world.submit("late")


def scheduler_failed_on_it(world: World) -> None:
    world.submit("a")

    def add(request: Request, now: float) -> None:
        raise RuntimeError("a defect")

    world.driver.scheduler.add = add  # type: ignore[method-assign]
    world.submit("b")


WAYS = [
    (length, {"a": ["length"]}),
    (stop, {"a": ["stop"]}),
    (cancelled, {"a": ["abort"]}),
    (cancelled_in_the_queue, {"a": ["abort"]}),
    (ingress_lost, {"a": ["disconnected"]}),
    (submitted_again, {"a": ["replaced", "length"]}),
    (submitted_again_with_nothing_left, {"a": ["length"]}),
    (refused_by_quota, {"a": ["length"], "b": ["length"], "c": ["client_limit"]}),
    (refused_by_the_queue, {"a": ["length"], "b": ["length"], "c": ["queue_full"]}),
    (refused_as_in_use, {"a": ["invalid_request", "length"]}),
    (too_late, {"a": ["error"]}),
    (row_failed, {"a": ["error"]}),
    (replica_failed, {"a": ["length"]}),
    (replica_drained, {"a": ["length"]}),
    (scheduler_failed, {"a": ["error"], "b": ["error"]}),
    (scheduler_failed_on_it, {"a": ["error"], "b": ["pool_failed"]}),
]


def attempts(lines: list[tuple[Any, ...]], name: str) -> list[str]:
    """How each submission of a request ended. Begin, events in order and one end each."""
    ends: list[str] = []
    expected_index: int | None = None
    is_live = False
    for _, *noted in (line for line in lines if line[0] == name):
        match noted:
            case ["refused", kind]:
                ends.append(str(kind))
            case ["begin"]:
                assert not is_live
                is_live, expected_index = True, None
            case ["end", how]:
                assert is_live
                is_live = False
                ends.append(str(how))
            case [index, token_ids]:
                assert is_live
                assert index == (index if expected_index is None else expected_index)
                expected_index = index + len(token_ids)
                assert list(token_ids) == TOKENS[index:expected_index]
    assert not is_live
    return ends


@pytest.mark.parametrize(("way", "ends"), WAYS)
def test_each_request_begins_has_its_events_in_order_and_ends_once(
    way: Callable[[World], None], ends: dict[str, list[str]]
) -> None:
    world = World()
    way(world)
    lines = world.journal.lines
    assert {name: attempts(lines, name) for name in ends} == ends
    assert {line[0] for line in lines} == ends.keys()
    assert not list(world.driver.requests.keys())
    assert all(not usage.num_running for usage in world.driver.quotas.usage.values())


def failing(method: str) -> RequestObserver:
    """An observer that raises in one method."""

    def fail(self: object, *told: object) -> None:
        raise ZeroDivisionError

    kind: type[RequestObserver] = type("Failing", (RequestObserver,), {method: fail})
    return kind()


def test_the_counters_of_each_observer_are_in_the_status_of_the_pool() -> None:
    class Begun(Journal):
        def counters(self) -> dict[str, int]:
            return {"num_begun": len([line for line in self.lines if line[1] == "begin"])}

    world = World(Begun(), failing("counters"))
    world.target()
    world.submit()
    counters = pool_status(world.driver).counters
    assert (counters["num_begun"], counters["num_prompt_tokens"]) == (1, len(PROMPT))


@pytest.mark.parametrize("method", ["begin", "event", "end", "refused"])
@pytest.mark.parametrize("way", [way for way, _ in WAYS])
def test_an_observer_that_raises_loses_no_answer_and_disturbs_no_other(
    way: Callable[[World], None], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    sound, world = World(), World(failing(method))
    way(sound)
    caplog.clear()
    way(world)
    assert told(world.ingress) == told(sound.ingress)
    assert world.journal.lines == sound.journal.lines
    assert repr(world.driver.auditor.counts) == repr(sound.driver.auditor.counts)
    assert repr(world.driver.quotas.usage) == repr(sound.driver.quotas.usage)
    is_called = any(
        method in line[1:] if method != "event" else isinstance(line[1], int)
        for line in sound.journal.lines
    )
    logged = [record for record in caplog.records if "fail failed" in record.message]
    assert bool(logged) == is_called
    assert all(record.levelno == logging.ERROR and record.exc_info for record in logged)


def test_an_error_at_each_event_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = World(failing("event"))
    world.target()
    for number in range(4):
        world.submit(f"r{number}")
        world.rounds(10)
    num_events = sum(isinstance(line[1], int) for line in world.journal.lines)
    logged = [record for record in caplog.records if "fail failed" in record.message]
    assert len(logged) == num_events.bit_length() < num_events
