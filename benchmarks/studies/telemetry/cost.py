"""What traces cost: microseconds of each hook, and the throughput of a service that is traced.

`steps` times the hooks alone. `service` starts a service that sends its spans to a sink in this
process, and reads from it in turns with none, a tenth and all of its requests traced; whether one
is, its own `traceparent` says, so that everything else stays as it is.

    python -m benchmarks.studies.telemetry.cost steps
    python -m benchmarks.studies.telemetry.cost service --turns 7 --output service.json
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import aiohttp
import grpc
import typer
from rich.console import Console
from rich.progress import track

from benchmarks.harness.starting import service as served
from benchmarks.studies.telemetry.steps import step_times
from deployments.config.service import ServiceConfig
from specdec_core.config import SpecMethod

app = typer.Typer(add_completion=False)

_SHARES = (0.0, 0.1, 1.0)
_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@app.command()
def steps(repeats: int = 15, output: Path | None = None) -> None:
    """Time every hook on its own."""
    _write({"microseconds": step_times(repeats)}, output)


@app.command()
def service(
    batch: Annotated[int, typer.Option(help="Streams at a time, and rows of a group.")] = 8,
    requests: Annotated[int, typer.Option(help="Of one reading.")] = 32,
    turns: Annotated[int, typer.Option(help="Readings of every share.")] = 7,
    max_tokens: int = 64,
    model: str = "smollm2-135m",
    spec_method: SpecMethod = SpecMethod.NGRAM,
    threads: Annotated[int, typer.Option(help="Torch threads of a replica.")] = 1,
    port: int = 8123,
    output: Path | None = None,
) -> None:
    """Read from a service whose requests are traced by shares, in turns."""
    config = ServiceConfig(
        model=model,
        spec_method=spec_method,
        max_num_seqs=batch,
        window=max(32, batch),
        torch_threads=threads,
        enable_prefix_caching=False,  # every turn reads the same prompts
        audit_share=0.0,
        port=port,
        grpc_port=port + 1000,
    )
    rates: dict[float, list[float]] = {share: [] for share in _SHARES}
    with _sink() as sizes, served(config):
        _rate(config, batch, batch, max_tokens, 1.0)
        for turn in track(range(turns), description="turns"):
            order = _SHARES[turn % 3 :] + _SHARES[: turn % 3]
            for share in order:
                rates[share].append(_rate(config, batch, requests, max_tokens, share))
    ratios = {
        str(share): [one / off for one, off in zip(rates[share], rates[0.0], strict=True)]
        for share in _SHARES
    }
    found: dict[str, Any] = {
        "model": model,
        "batch": batch,
        "requests": requests,
        "max_tokens": max_tokens,
        "threads": threads,
        "method": spec_method,
        "tokens_per_second": {str(share): one for share, one in rates.items()},
        "median_ratio": {share: median(one) for share, one in ratios.items()},
        "ratios": ratios,
        "sent_bytes": sum(sizes),
        "sent_messages": len(sizes),
    }
    _write(found, output)


def _rate(config: ServiceConfig, batch: int, requests: int, max_tokens: int, share: float) -> float:
    """Tokens per second, a `share` of the requests traced: the same ones in every turn."""
    chosen = random.Random(5).sample(range(requests), round(share * requests))
    began_s = time.perf_counter()
    num_tokens = asyncio.run(_read(config, batch, requests, max_tokens, set(chosen)))
    return num_tokens / (time.perf_counter() - began_s)


async def _read(
    config: ServiceConfig, batch: int, requests: int, max_tokens: int, traced: set[int]
) -> int:
    places = asyncio.Semaphore(batch)
    url = f"http://127.0.0.1:{config.port}/v1/completions"

    async def ask(session: aiohttp.ClientSession, number: int) -> int:
        body = {
            "prompt": [*range(100, 140), 200 + number],
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        flags = "01" if number in traced else "00"
        parent = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-{flags}"
        async with places, session.post(url, json=body, headers={"traceparent": parent}) as answer:
            answer.raise_for_status()
            usage: int = (await answer.json())["usage"]["completion_tokens"]
            return usage

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session:
        return sum(await asyncio.gather(*(ask(session, number) for number in range(requests))))


@contextmanager
def _sink() -> Iterator[list[int]]:
    """A collector that reads nothing of what it is sent: sizes of messages. The environment of what
    starts meanwhile names it."""
    sizes: list[int] = []

    def export(message: bytes, context: grpc.ServicerContext) -> bytes:
        sizes.append(len(message))
        return b""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            return (
                grpc.unary_unary_rpc_method_handler(export) if details.method == _EXPORT else None
            )

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
    os.environ["OTEL_TRACES_SAMPLER"] = "parentbased_always_off"
    try:
        yield sizes
    finally:
        server.stop(None)


def _write(found: dict[str, Any], output: Path | None) -> None:
    text = json.dumps(found, indent=2)
    Console().print_json(text)
    if output is not None:
        output.write_text(text + "\n")


if __name__ == "__main__":
    app()
