"""What exact numerics costs: one verification pass of B rows of K + 1 tokens, exact over fast.

Passes of the two modes alternate, so that a busy machine slows both; medians are compared.

    python -m benchmarks.exact_cost --dtype bfloat16 --output benchmarks/results/exact_cost.json
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.pass_times import cache_prompt, median_pass_s
from deployments.demo.models import resolve_model
from specdec_core.config import Numerics
from specdec_core.loading.loader import DType, LoadConfig, load_model
from specdec_core.worker.model_runner import ModelRunner

BATCH_SIZES = (1, 4, 8, 16, 32)
DRAFT_TOKENS = (0, 1, 4, 8)


def main(
    model: Annotated[str, typer.Option(help="Folder, hub id or demo name.")] = "smollm2-135m",
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
    prompt_len: Annotated[int, typer.Option(help="Cached tokens of every row.")] = 200,
    repeats: Annotated[int, typer.Option(help="Timed passes of each mode and shape.")] = 15,
    threads: Annotated[int, typer.Option()] = 2,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Time both modes at every shape and print exact over fast."""
    torch.set_num_threads(threads)
    models = [_load(model, dtype, numerics) for numerics in (Numerics.FAST, Numerics.EXACT)]
    shapes = [(batch, k) for batch in BATCH_SIZES for k in DRAFT_TOKENS]
    cells = []
    for batch, k in track(shapes, description="shapes"):
        fast_s, exact_s = median_pass_s(models, batch, k, prompt_len, repeats)
        cells.append({"batch": batch, "k": k, "rows": batch * (k + 1), "fast_ms": fast_s * 1e3})
        cells[-1] |= {"exact_ms": exact_s * 1e3, "throughput_ratio": fast_s / exact_s}
    prefill_s = [_prefill(one) for one in models]
    result = {"model": model, "dtype": dtype, "threads": threads, "prompt_len": prompt_len}
    result |= {"class_table": str(models[1].class_table), "cells": cells}
    result |= {"prefill_512_throughput_ratio": prefill_s[0] / prefill_s[1]}
    _print(result)
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n")


def _load(model: str, dtype: DType, numerics: Numerics) -> ModelRunner:
    config = LoadConfig(dtype=dtype, numerics=numerics, kv_cache_tokens=32768, max_model_len=2048)
    return load_model(resolve_model(model), config).model


def _prefill(model: ModelRunner) -> float:
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        model.free(cache_prompt(model, 512))
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _print(result: dict[str, object]) -> None:
    table = Table("B", "K", "rows", "fast ms", "exact ms", "exact / fast throughput")
    cells = result["cells"]
    assert isinstance(cells, list)
    for cell in cells:
        times = (f"{cell['fast_ms']:.1f}", f"{cell['exact_ms']:.1f}")
        ratio = f"{cell['throughput_ratio']:.2f}"
        table.add_row(str(cell["batch"]), str(cell["k"]), str(cell["rows"]), *times, ratio)
    console = Console()
    console.print(table)
    console.print(result["class_table"])
    console.print("prefill of 512 tokens:", f"{result['prefill_512_throughput_ratio']:.2f}")


if __name__ == "__main__":
    typer.run(main)
