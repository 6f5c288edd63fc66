"""The library with nothing but a model, beside plain decoding: tokens per second.

Two engines decode the same prompts in turns: one as `Engine.load` makes it, one that never drafts.
So many requests are under way at a time; the next begins when one has ended.

    OMP_NUM_THREADS=2 python -m benchmarks.engine_pace --input spec_bench_240.jsonl --output F.json
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.machine import cpu_name
from benchmarks.prompts import chat_prompts
from benchmarks.synthetic import requests_for
from deployments.cli.progress import cell_progress
from deployments.demo.models import resolve_model
from specdec_core import Engine, PoolConfig, SamplingParams, SpecMethod, SpeculationConfig
from specdec_core.loading.loader import LoadConfig

_MAX_LEN = 2048
_PLAIN = SpeculationConfig(method=SpecMethod.NONE)


def main(
    input: Annotated[Path, typer.Option(help="JSONL of prompts, as Spec-Bench's.")],
    model: Annotated[str, typer.Option(help="Folder or name.")] = "smollm2-135m",
    sample: Annotated[int, typer.Option(help="Prompts, evenly of all categories.")] = 48,
    streams: Annotated[str, typer.Option(help="Requests under way.")] = "1,8,16,32",
    temperature: float = 0.0,
    max_tokens: int = 128,
    rounds: int = 3,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Print both paces and their ratio, medians of paired turns."""
    folder = resolve_model(model)
    counts = [int(count) for count in streams.split(",")]
    load = LoadConfig(max_model_len=_MAX_LEN, kv_cache_tokens=max(counts) * _MAX_LEN)
    engine = Engine.load(folder, load=load)
    rows = max(counts)
    pool = PoolConfig(max_group_size=rows, window=rows, speculation=_PLAIN)
    plain = Engine.load(folder, load=load, pool=pool)
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=0)
    prompts = chat_prompts(folder, input, sample)
    cells: list[dict[str, Any]] = []
    with cell_progress(len(counts) * rounds) as tell:
        for count in counts:
            pairs = []
            for number in range(rounds):
                order = (engine, plain) if number % 2 else (plain, engine)
                paces = {one: _pace(one, prompts, params, count) for one in order}
                pairs.append((paces[engine], paces[plain]))
                tell(f"{count} streams", 1)
            cells.append({"streams": count, "tokens_per_second": pairs})
    _show(cells)
    if output is not None:
        facts = {"cpu": cpu_name(), "threads": torch.get_num_threads(), "model": model}
        facts |= {"prompts": len(prompts), "max_tokens": max_tokens, "temperature": temperature}
        output.write_text(json.dumps({**facts, "cells": cells}, indent=1) + "\n")


def _pace(
    engine: Engine, prompts: Sequence[tuple[int, ...]], params: SamplingParams, streams: int
) -> float:
    """Tokens per second, prompts included in the time: nothing is found that an earlier turn has
    cached."""
    waiting = deque(requests_for(prompts, params, str(time.monotonic_ns())))
    num_live = num_tokens = 0
    started = time.perf_counter()
    while waiting or num_live:
        while waiting and num_live < streams:
            engine.add_request(waiting.popleft())
            num_live += 1
        for event in engine.step():
            num_tokens += len(event.token_ids)
            num_live -= event.finish_reason is not None
    return num_tokens / (time.perf_counter() - started)


def _show(cells: Sequence[dict[str, Any]]) -> None:
    table = Table("streams", "Engine.load, tokens/s", "plain", "ratio", "of each turn")
    for cell in cells:
        ours, plain = (median(column) for column in zip(*cell["tokens_per_second"], strict=True))
        ratios = [one / other for one, other in cell["tokens_per_second"]]
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        table.add_row(
            str(cell["streams"]), f"{ours:.0f}", f"{plain:.0f}", f"{median(ratios):.2f}", each
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
