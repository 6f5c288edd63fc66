"""Steps of plain decoding in this process: how even its passes are, and what Python adds to them.

An Engine decodes so many rows with so many tokens cached, without drafts; once on the machine as it
is and once beside a process that works 2.5 ms of each 10. Outside kernels is what is left of a step
without its pass: planning, the choice, the replica and the pool. No two rows share a block.

    OMP_NUM_THREADS=2 python -m benchmarks.pass_spread --output benchmarks/results/pass_spread.json
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness.machine import cpu_name
from deployments.demo.models import resolve_model
from specdec_core.config import SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.loader import DType, LoadConfig, load_model
from specdec_core.model import score
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.worker.model_runner import ModelRunner

_ROWS = (1, 8, 16, 32)
_CACHED = (64, 400)
_NUM_WARM_UPS = 5
_COMPANION = """
import time
while True:
    until = time.perf_counter() + 0.0025
    while time.perf_counter() < until: pass
    time.sleep(0.0075)
"""


def main(
    model: Annotated[str, typer.Option(help="Folder or name.")] = "smollm2-135m",
    algorithm: AlgorithmName = AlgorithmName.EXSPEC,
    temperature: float = 0.0,
    steps: Annotated[int, typer.Option(help="Timed for each cell.")] = 50,
    scattered: Annotated[
        bool,
        typer.Option(help="In a cache that others filled before, as in a service after a while."),
    ] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Print p50 and p90 of a pass and the time outside kernels for every cell."""
    load = LoadConfig(dtype=DType.BFLOAT16, kv_cache_tokens=max(_ROWS) * (max(_CACHED) + 2 * steps))
    target = load_model(resolve_model(model), load).model
    cells: list[dict[str, Any]] = []
    shapes = [(rows, cached) for rows in _ROWS for cached in _CACHED]
    for rows, cached in track(shapes, description="shapes"):
        prompt_len = max(cached - steps - _NUM_WARM_UPS, 2)
        engine = _engine(target, algorithm, rows)
        if scattered:
            _scatter(target)
        _begin(engine, rows, prompt_len, temperature, steps)
        for is_busy in (False, True):
            with _companion() if is_busy else nullcontext():
                times = _timed(target, engine, steps)
            cells.append({"rows": rows, "cached": cached, "is_busy": is_busy, **times})
        _end(engine)
    _show(cells)
    if output is not None:
        facts = {"model": model, "algorithm": algorithm, "temperature": temperature}
        facts |= {
            "scattered": scattered,
            "cpu": cpu_name(),
            "threads": torch.get_num_threads(),
            "steps": steps,
        }
        output.write_text(json.dumps({**facts, "cells": cells}, indent=1) + "\n")


def _engine(target: ModelRunner, algorithm: AlgorithmName, rows: int) -> Engine:
    config = SchedulerConfig(
        max_group_size=rows,
        window=rows,
        speculation=SpeculationConfig(method=SpecMethod.NONE),
    )
    return Engine(target, config=config, algorithm=algorithm)


def _scatter(target: ModelRunner) -> None:
    """Fill the cache with sequences of one block, which then end in any order."""
    cache, rng, size = target.prefix_cache, random.Random(0), target.kv_cache_spec.block_size
    assert cache is not None
    slots: list[int] = []
    while num_free := target.num_free_blocks:
        ids = {
            target.allocate(): tuple(rng.randrange(1000) for _ in range(size))
            for _ in range(min(num_free, max(_ROWS)))
        }
        score(target, [(slot, tokens, 0) for slot, tokens in ids.items()])
        for slot, tokens in ids.items():
            cache.publish(slot, array("i", tokens), "")
        slots += ids
    rng.shuffle(slots)
    for slot in slots:
        target.free(slot)


def _begin(engine: Engine, rows: int, prompt_len: int, temperature: float, steps: int) -> None:
    """So many requests, until all are past their prompts."""
    prompt = tuple(100 + i % 1000 for i in range(prompt_len))
    for row in range(rows):
        params = SamplingParams(max_tokens=10 * steps, temperature=temperature, seed=row)
        engine.add_request(
            Request(request_id=str(row), prompt_token_ids=(row, *prompt[1:]), params=params)
        )
    begun: set[str] = set()
    while len(begun) < rows:
        begun |= {event.request_id for event in engine.step()}


def _timed(target: ModelRunner, engine: Engine, steps: int) -> dict[str, float]:
    """Milliseconds."""
    passes: list[float] = []
    outside: list[float] = []
    run_pass = target.run_pass

    def timed_pass(*arguments: Any) -> Any:
        started = time.perf_counter()
        logits = run_pass(*arguments)
        passes.append(time.perf_counter() - started)
        return logits

    with patch.object(target, "run_pass", timed_pass):
        for _ in range(_NUM_WARM_UPS + steps):
            num_before, started = len(passes), time.perf_counter()
            engine.step()
            outside.append(time.perf_counter() - started - sum(passes[num_before:]))
    passes, outside = sorted(passes[-steps:]), sorted(outside[-steps:])
    return {
        "pass_p50_ms": 1e3 * passes[steps // 2],
        "pass_p90_ms": 1e3 * passes[steps * 9 // 10],
        "outside_p50_ms": 1e3 * outside[steps // 2],
        "outside_p90_ms": 1e3 * outside[steps * 9 // 10],
    }


def _end(engine: Engine) -> None:
    for row in range(max(_ROWS)):
        engine.abort(str(row))
    while engine.has_work:
        engine.step()


@contextmanager
def _companion() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", _COMPANION])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _show(cells: list[dict[str, Any]]) -> None:
    table = Table("rows", "cached", "beside", "pass p50, ms", "p90, ms", "p90 / p50", "outside, ms")
    for cell in cells:
        p50, p90 = cell["pass_p50_ms"], cell["pass_p90_ms"]
        beside = "2.5 of 10 ms" if cell["is_busy"] else "nobody"
        shown = (f"{p50:.2f}", f"{p90:.2f}", f"{p90 / p50:.2f}", f"{cell['outside_p50_ms']:.2f}")
        table.add_row(f"{cell['rows']}", f"{cell['cached']}", beside, *shown)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
