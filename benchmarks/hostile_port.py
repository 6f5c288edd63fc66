"""How fast a cell stays while a hundred peers without the token work on the coordinator's port.

    python -m benchmarks.hostile_port

Quiet and attacked, plain and over TLS, in turns: tokens per second of 16 streams over fake
replicas, where nothing but messages costs time. The attackers are a process of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

import grpc

from deployments.wire.tls_files import TlsFiles
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec_core.messages import Role
from tests.deployments.cell import cell
from tests.deployments.coordinator.test_cell import PLAIN, collect, expected, request, until
from tests.deployments.tls.authority import Authority

NUM_STREAMS = 16
NUM_TOKENS = 300
PAUSE_S = 0.5


async def tokens_per_second(address_file: Path, tls: TlsFiles | None) -> float:
    async with cell(PLAIN, tls=tls) as parts:
        parts.start_replica("t0", Role.TARGET)
        client = await parts.client()
        await until(lambda: client.state is not None and client.state.num_targets == 1)
        assert parts.endpoint is not None
        address_file.write_text(parts.endpoint.address)
        await asyncio.sleep(5)  # the attackers arrive
        asked = [request(f"r{i}", NUM_TOKENS) for i in range(NUM_STREAMS)]
        began = time.perf_counter()
        answers = await asyncio.gather(*(collect(client, one) for one in asked))
        took = time.perf_counter() - began
        assert answers == [expected(one) for one in asked]
        address_file.write_text("")
        return NUM_STREAMS * NUM_TOKENS / took


async def say_nothing(host: str, port: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    await reader.read()
    writer.close()


async def say_garbage(host: str, port: int) -> None:
    _, writer = await asyncio.open_connection(host, port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 10_000)
    await writer.drain()
    writer.close()


async def register(host: str, port: int, headers: tuple[tuple[str, str], ...] = ()) -> None:
    async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
        call = pb_grpc.CoordinatorServiceStub(channel).Work(metadata=headers)
        await call.write(pb.WorkUp(register=pb.Register(replica_id="x" * 100_000)))
        await call.code()


async def send_huge_headers(host: str, port: int) -> None:
    await register(host, port, tuple((f"x-{i}", "x" * 1000) for i in range(1000)))


ATTACKS = (say_nothing, say_garbage, register, send_huge_headers)


async def attack(address_file: Path, num_peers: int) -> None:
    async def go_on(number: int) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            host, _, port = address_file.read_text().rpartition(":")
            with contextlib.suppress(OSError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                if host:
                    await ATTACKS[number % len(ATTACKS)](host, int(port))

    await asyncio.gather(asyncio.Event().wait(), *map(go_on, range(num_peers)))


async def measure(turns: int, num_peers: int, folder: Path) -> None:
    files = Authority().issue(folder / "tls")
    address_file = folder / "address"
    figures: dict[str, list[float]] = {}
    for _, tls in itertools.product(range(turns), (None, files)):
        for is_attacked in (False, True):
            address_file.write_text("")
            command = [sys.executable, "-m", "benchmarks.hostile_port", "--attack"]
            command += [str(address_file), "--peers", str(num_peers if is_attacked else 0)]
            attackers = await asyncio.create_subprocess_exec(*command)
            try:
                speed = await tokens_per_second(address_file, tls)
            finally:
                attackers.kill()
                await attackers.wait()
            name = f"{'TLS' if tls else 'plain'}, {'attacked' if is_attacked else 'quiet'}"
            figures.setdefault(name, []).append(speed)
    for name, speeds in figures.items():
        print(f"{name:16} {statistics.median(speeds):8.0f} tokens/s  {[round(s) for s in speeds]}")
    for name in ("plain", "TLS"):
        pairs = zip(figures[f"{name}, attacked"], figures[f"{name}, quiet"], strict=True)
        print(f"{name}: attacked / quiet {statistics.median(a / q for a, q in pairs):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--attack", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        asyncio.run(attack(options.attack, options.peers))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(options.turns, options.peers, Path(folder)))


if __name__ == "__main__":
    main()
