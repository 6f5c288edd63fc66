"""The benchmark finds a stream that stood still, and compares each input with its twin."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from benchmarks.neighbours.gaps import Neighbour, Trial, trial
from benchmarks.neighbours.inputs import BODY_BYTES, HOSTILE, Input, crowd, harmless
from benchmarks.neighbours.report import (
    HARMLESS,
    PLAIN_CROWD,
    SCHEMA_CROWD,
    broken_promises,
    record,
)
from benchmarks.overload.questions import Server
from specdec_core.errors import SpecdecError

STALL_S = 0.4


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A stream of 200 chunks, or an answer after everything stood still."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    body = json.loads(await reader.readexactly(length))
    if body.get("stream"):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(200):
            writer.write(b"data: {}\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)
    else:
        time.sleep(body["stall_s"])
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}")
    writer.close()


@pytest.mark.parametrize("count", [1, 3])
def test_a_stall_is_the_longest_gap(count: int) -> None:
    async def scenario() -> Trial:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            stalling = Input("/v1/completions", {"stall_s": STALL_S})
            return await trial(Server(port=port, grpc_port=0, model="m"), [stalling] * count)

    found = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert found.longest_gap_ms >= STALL_S * 900
    assert found.statuses == {"400": count}


def test_a_stream_that_ends_too_early_is_no_trial() -> None:
    async def scenario() -> None:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            slow = Input("/v1/completions", {"stall_s": 0.0, "stream": True})
            await trial(Server(port=port, grpc_port=0, model="m"), [slow])

    with pytest.raises(SpecdecError, match="ended before"):
        asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize(
    ("times", "expected"),
    [([0, 1, 2, 3, 4, 5], 1), ([0, 1, 4, 5], 2), ([0, 3, 9], 2), ([0, 2.5, 3], 2), ([0, 9], 3)],
)
def test_gaps_count_from_the_start_to_the_end(times: list[float], expected: float) -> None:
    """A gap that was open at the start counts from there, one that is open at the end to there."""
    assert Neighbour(list(times)).longest_gap_s(2, 5) == expected


def test_each_input_is_compared_with_its_twin() -> None:
    def trials(*gaps: float) -> list[Trial]:
        return [Trial(gap, 1.0, {"200": 1}) for gap in gaps]

    found = {
        HARMLESS: trials(50, 60, 900),
        "regex": trials(150, 160, 1_000),
        "prompts": trials(10, 161, 5_000),
        PLAIN_CROWD: trials(300),
        SCHEMA_CROWD: trials(321),
    }
    assert broken_promises(found) == [
        "prompts: 101 ms longer, the limit is 100 ms",
        "32 requests of one schema: 21 ms longer, the limit is 20 ms",
    ]
    told = record(found)
    assert told["regex"]["over_ms"] == 100
    assert told[HARMLESS]["over_ms"] is told[PLAIN_CROWD]["over_ms"] is None
    assert broken_promises({"regex": trials(9_999)}) == []


def test_hostile_inputs_fit_in_a_body() -> None:
    for make in HOSTILE.values():
        body = json.dumps({"model": "smollm2-135m", **make().body})
        assert len(body) <= BODY_BYTES + 1_000
    for has_schema in (False, True):
        bodies = [one.body for one in crowd(1, has_schema=has_schema)]
        assert len({json.dumps(body.get("structured_outputs")) for body in bodies}) == 1
        assert bodies[0]["prompt"] == harmless().body["prompt"]
