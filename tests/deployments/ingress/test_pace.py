"""Under load news waits for more: how long, and that nothing but its number of messages changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from deployments.ingress.scheduler_client import LOOK_S, MOST_HELD_S, ChunkPacing, share_of
from specdec_core.config import SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import Role
from specdec_core.request import FinishReason, TokenEvent
from tests.deployments.cell import Cell, cell
from tests.deployments.coordinator.test_cell import expected, request
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.http_server import completion, expected_text, server, stream

PLAIN = SchedulerConfig(speculation=SpeculationConfig(method=SpecMethod.NONE))
SHARE = 0.1


@dataclass
class Machine:
    """Two clocks."""

    now_s: float = 0.0
    spent_s: float = 0.0

    def pace(self) -> ChunkPacing:
        return ChunkPacing(SHARE, clock=lambda: self.now_s, cpu_clock=lambda: self.spent_s)

    def run(self, pace: ChunkPacing, num_cores: float, num_looks: int = 1) -> float:
        """The ingress takes so much of the machine for a while."""
        for _ in range(num_looks):
            self.now_s += LOOK_S
            self.spent_s += LOOK_S * num_cores
            pace.hold_s()
        return pace.hold_s()


class Held(ChunkPacing):
    """Always so long."""

    def __init__(self, held_s: float) -> None:
        super().__init__(1.0)
        self._held_s = held_s

    def hold_s(self) -> float:
        return self._held_s


def test_an_ingress_below_its_share_holds_nothing() -> None:
    machine = Machine()
    assert machine.run(machine.pace(), 0.9 * SHARE, num_looks=20) == 0


def test_a_busy_ingress_holds_longer_and_longer_up_to_a_bound() -> None:
    machine = Machine()
    pace = machine.pace()
    held = [machine.run(pace, 3 * SHARE) for _ in range(8)]
    assert held == sorted(held)
    assert 0 < held[0] < 0.01
    assert held[-1] == MOST_HELD_S


def test_it_ends_where_its_share_is_what_it_takes() -> None:
    """Chunks cost what they cost: twice as long between them is half of it."""
    machine = Machine()
    pace = machine.pace()
    for _ in range(30):
        machine.run(pace, SHARE * 0.02 / max(pace.hold_s(), 0.002))
    assert pace.hold_s() == pytest.approx(0.02)


def test_what_was_held_under_load_is_forgotten_behind_it() -> None:
    machine = Machine()
    pace = machine.pace()
    machine.run(pace, 1.0, num_looks=10)
    assert machine.run(pace, 0.1 * SHARE, num_looks=2) == 0


def test_between_looks_nothing_changes() -> None:
    machine = Machine()
    pace = machine.pace()
    machine.now_s, machine.spent_s = 0.9 * LOOK_S, 1.0
    assert pace.hold_s() == 0


def test_a_large_machine_lets_its_ingress_have_half_a_core() -> None:
    assert [share_of(cores) for cores in (2, 8, 64)] == [0.05, 0.2, 0.5]


async def events_of(parts: Cell, pace: ChunkPacing, num_tokens: int = 30) -> list[TokenEvent]:
    client = await parts.client(pace=pace)
    async for _ in client.generate(request("first", 2)):
        pass  # from now on the coordinator knows the pace
    return [event async for event in client.generate(request("a", num_tokens))]


async def test_held_news_comes_as_one_whole_and_in_order() -> None:
    async with cell(PLAIN) as parts:
        parts.start_replica("t0", Role.TARGET, Slow())
        events = await events_of(parts, Held(0.05))
    assert [i for event in events for i in event.token_ids] == expected(request("a", 30))
    assert [event.index for event in events] == [
        sum(len(event.token_ids) for event in events[:place]) for place in range(len(events))
    ]
    assert len(events[0].token_ids) == 1, "the first token never waits"
    assert len(events) <= 10
    assert events[-1].finish_reason is FinishReason.LENGTH


async def test_a_coordinator_that_comes_back_hears_the_pace_again() -> None:
    async with cell(PLAIN) as parts:
        parts.start_replica("t0", Role.TARGET, Slow())
        await events_of(parts, Held(0.05))
        await parts.kill_coordinator()
        await parts.start_coordinator()
        client = parts.clients["client"]
        async for _ in client.generate(request("first", 2)):
            pass
        events = [event async for event in client.generate(request("b", 30))]
    assert [i for event in events for i in event.token_ids] == expected(request("b", 30))
    assert len(events) <= 10


async def test_a_pace_that_makes_no_sense_ends_its_stream_alone() -> None:
    async with cell(PLAIN) as parts:
        parts.start_replica("t0", Role.TARGET)
        other = await parts.client("other")
        await parts.client(pace=Held(1e9))
        client = parts.clients["client"]
        told = asyncio.create_task(collect(client.generate(request("a", 300))))
        answer = await collect(other.generate(request("b", 20)))
        assert answer == expected(request("b", 20))
        told.cancel()


async def collect(events: Any) -> list[int]:
    return [i async for event in events for i in event.token_ids]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_whose_news_is_held_says_the_same(path: str) -> None:
    """Text, ids, log-probabilities, stop string and finish reason, in fewer chunks."""

    async def told(pace: ChunkPacing) -> tuple[int, list[Any]]:
        body = completion(max_tokens=60, return_token_ids=True, seed=1, request_id="same")
        if "chat" in path:
            body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
            body |= {"logprobs": True, "top_logprobs": 2}
        else:
            body |= {"logprobs": 2, "stop": expected_text("HELLO", 60)[40:43]}
        async with server(config=PLAIN, targets=0, pace=pace) as (client, parts):
            parts.start_replica("t0", Role.TARGET, Slow())
            while not parts.clients["client"].has_targets:
                await asyncio.sleep(0.005)
            await client.post("/v1/completions", json=completion())
            chunks = await stream(client, path, body)
        return len(chunks), chunks

    def merged(chunks: list[Any], read: Callable[[Any], Any]) -> list[Any]:
        return [item for chunk in chunks for item in read(chunk["choices"][0]) or ()]

    def lists_of(choice: Any) -> list[Any]:
        found = choice["logprobs"] or {}
        names = ("tokens", "text_offset", "token_logprobs")
        columns = [found.get(name, []) for name in names]
        return found.get("content") or list(zip(*columns, strict=True))

    (num_at_once, at_once), (num_held, held) = await told(Held(0.0)), await told(Held(0.05))
    assert num_held < num_at_once / 2
    for read in (
        lambda choice: choice.get("token_ids"),
        lambda choice: choice.get("text") or choice.get("delta", {}).get("content"),
        lists_of,
    ):
        assert merged(held, read) == merged(at_once, read)
    ends = [chunks[-1]["choices"][0] for chunks in (held, at_once)]
    assert ends[0]["finish_reason"] == ends[1]["finish_reason"]
    assert ends[0].get("stop_reason") == ends[1].get("stop_reason")


class Slow(FakeReplica):
    """Takes 2 ms a round."""

    def __init__(self) -> None:
        super().__init__(Role.TARGET)

    def execute(self, lease: Any) -> Any:
        time.sleep(0.002)
        return super().execute(lease)
