"""The client of examples/ over connections that break: it prints the whole answer all the same."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import uvicorn

from benchmarks.harness.ports import free_port
from tests.deployments.http_server import application, expected_text

EXAMPLE = Path(__file__).parents[3] / "examples" / "resuming_client.py"


class CuttingProxy:
    """Breaks every connection after so many bytes of its answer; None: after its end."""

    def __init__(self, upstream: int, num_bytes: int | None) -> None:
        self.num_connections = 0
        self._upstream = upstream
        self._num_bytes = num_bytes

    async def start(self) -> str:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _connected(self, down: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        asking = asyncio.create_task(_copied(down, writer))
        left = self._num_bytes
        while left is None or left > 0:
            data = await reader.read(1024 if left is None else min(left, 1024))
            if not data:
                break
            up.write(data)
            await up.drain()
            left = None if left is None else left - len(data)
        asking.cancel()
        writer.close()
        up.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1024):
        writer.write(data)
        await writer.drain()


@pytest.mark.parametrize(
    "num_bytes",
    [0, 1100, *(pytest.param(n, marks=pytest.mark.nightly) for n in (300, 700, 2000, 2600))],
)
async def test_it_prints_the_whole_answer(num_bytes: int) -> None:
    """Two addresses break, at different places of the answer; the third one does not."""
    async with application() as (app, _):
        port = free_port()
        config = uvicorn.Config(app, port=port, log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        proxies = [CuttingProxy(port, n) for n in (num_bytes, num_bytes + 450, None)]
        urls = [await proxy.start() for proxy in proxies]
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(EXAMPLE), *urls, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
        assert printed.decode() == expected_text("What is the capital of France?", 32) + "\n"
        assert [proxy.num_connections for proxy in proxies] == [1, 1, 1]
        server.should_exit = True
        await serving
