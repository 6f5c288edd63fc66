"""What preferring rows of equal shape gains: tokens/s, and the time between tokens.

Both engines run over one model and decode the same prompts in turns. The window is wider than a
group, so that there is a choice. Prompts are taken as they are, and cut to one length, which gives
equal shapes every chance.

    python -m benchmarks.equal_length --input spec_bench_240.jsonl --output F.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.prompts import chat_prompts
from benchmarks.synthetic import requests_for
from deployments.cli.progress import cell_progress
from deployments.demo.models import resolve_model
from specdec_core import PoolConfig, SamplingParams, SpecMethod, SpeculationConfig
from specdec_core.config import KPolicyName
from specdec_core.engine import Engine
from specdec_core.loading.loader import DType, LoadConfig, load_model
from specdec_core.model import CachedModel

_MAX_LEN = 4096
_ON, _OFF = "by shape", "by age"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All prompts, once."""

    tokens_per_second: float
    gap_p50_ms: float
    gap_p99_ms: float
    """Between two news of one request; the first has its prefill before it and counts for none."""
    equal_share: float
    """Of the groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Which prompts, and who drafts."""

    prompts: tuple[tuple[int, ...], ...]
    name: str
    method: SpecMethod


def main(
    input: Annotated[Path, typer.Option(help="Prompts, as for `specdec generate`.")],
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
    model: Annotated[str, typer.Option(help="Folder, hub id or demo name.")] = "smollm2-135m",
    sample: Annotated[int, typer.Option()] = 48,
    group_size: Annotated[int, typer.Option()] = 8,
    window: Annotated[int, typer.Option()] = 32,
    prompt_len: Annotated[int, typer.Option(help="Of the prompts that are cut.")] = 64,
    max_tokens: Annotated[int, typer.Option()] = 64,
    repeats: Annotated[int, typer.Option(help="Turns behind a warm-up.")] = 5,
    threads: Annotated[int, typer.Option()] = 2,
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
) -> None:
    settings = {name: str(value) for name, value in locals().items()}
    torch.set_num_threads(threads)
    folder = str(resolve_model(model))
    load = LoadConfig(
        dtype=dtype,
        device="cpu",
        max_model_len=_MAX_LEN,
        kv_cache_tokens=window * 1024,
        enable_prefix_caching=False,
    )
    target = load_model(folder, load).model
    whole = tuple(chat_prompts(folder, input, sample))
    cut = tuple(prompt[-prompt_len:] for prompt in whole if len(prompt) >= prompt_len)
    cells = [
        Cell(prompts=prompts, name=f"{name}, {method}", method=method)
        for name, prompts in (("prompts as they are", whole), ("prompts of one length", cut))
        for method in (SpecMethod.NGRAM, SpecMethod.NONE)
    ]
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    records = []
    with cell_progress(len(cells) * repeats) as report:
        for cell in cells:
            config = PoolConfig(
                max_group_size=group_size,
                window=window,
                speculation=SpeculationConfig(method=cell.method, k_policy=KPolicyName.FIXED),
            )
            turns = _turns(target, config, cell, params, repeats)
            report(cell.name, repeats)
            records.append(_record(cell, turns))
    Console().print(_table(records))
    if output is not None:
        output.write_text(json.dumps({"settings": settings, "cells": records}, indent=1) + "\n")


def _turns(
    target: CachedModel, config: PoolConfig, cell: Cell, params: SamplingParams, repeats: int
) -> list[dict[str, Run]]:
    engines = {
        name: Engine(target, config=replace(config, group_by_shape=name == _ON))
        for name in (_ON, _OFF)
    }
    turns = []
    for turn in range(repeats + 1):
        names = (_ON, _OFF) if turn % 2 else (_OFF, _ON)
        turns.append({name: _run(engines[name], cell.prompts, params) for name in names})
    return turns[1:]


def _run(engine: Engine, prompts: Sequence[tuple[int, ...]], params: SamplingParams) -> Run:
    before = engine.stats
    heard: dict[str, float] = {}
    gaps, num_tokens = [], 0
    started = time.perf_counter()
    for event in engine.generate(requests_for(prompts, params)):
        now = time.perf_counter()
        if event.request_id in heard:
            gaps.append(now - heard[event.request_id])
        heard[event.request_id] = now
        num_tokens += len(event.token_ids)
    seconds = time.perf_counter() - started
    after = engine.stats
    num_equal = after.num_equal_length_groups - before.num_equal_length_groups
    percentiles = quantiles(gaps, n=100)
    return Run(
        tokens_per_second=num_tokens / seconds,
        gap_p50_ms=1e3 * percentiles[49],
        gap_p99_ms=1e3 * percentiles[98],
        equal_share=num_equal / (after.num_groups - before.num_groups),
    )


def _record(cell: Cell, turns: Sequence[dict[str, Run]]) -> dict[str, Any]:
    def ratio(field: str) -> float:
        return median(getattr(turn[_ON], field) / getattr(turn[_OFF], field) for turn in turns)

    return {
        "cell": cell.name,
        "num_prompts": len(cell.prompts),
        "tokens_per_second_ratio": ratio("tokens_per_second"),
        "gap_p99_ratio": ratio("gap_p99_ms"),
        "runs": {name: [asdict(turn[name]) for turn in turns] for name in (_ON, _OFF)},
    }


def _table(records: Sequence[dict[str, Any]]) -> Table:
    table = Table("cell", title="By shape over by age: medians of the turns", pad_edge=False)
    for title in ("tokens/s", "ratio", "P99 ms", "ratio", "equal groups"):
        table.add_column(title, justify="right")
    for record in records:
        on, off = record["runs"][_ON], record["runs"][_OFF]
        table.add_row(
            record["cell"],
            _both(on, off, "tokens_per_second"),
            f"{record['tokens_per_second_ratio']:.3f}",
            _both(on, off, "gap_p99_ms"),
            f"{record['gap_p99_ratio']:.3f}",
            _both(on, off, "equal_share", digits=2),
        )
    return table


def _both(
    on: Sequence[dict[str, float]], off: Sequence[dict[str, float]], field: str, digits: int = 0
) -> str:
    return " / ".join(f"{median(run[field] for run in own):.{digits}f}" for own in (on, off))


if __name__ == "__main__":
    typer.run(main)
