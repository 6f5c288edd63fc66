"""What our own forward saves: one pass of B rows of K + 1 tokens, ours over transformers'.

Both run over the same packed weights, cache and attention, in turns; medians are compared.

    python -m benchmarks.forward_cost --output benchmarks/results/forward_cost.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.pass_times import median_pass_s
from deployments.demo_models import resolve_model
from specdec_core.config import ModelImpl
from specdec_core.models.loading import DType, LoadConfig, load_model
from specdec_core.models.numerics import Numerics

_SHAPES = ((1, 0), (1, 4), (4, 0), (4, 4), (8, 0), (8, 4), (16, 0), (32, 0))
"""(batch, K)"""


def main(
    model: Annotated[str, typer.Option(help="Folder, hub id or demo name.")] = "smollm2-135m",
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
    prompt_len: Annotated[int, typer.Option(help="Cached tokens of every row.")] = 200,
    repeats: Annotated[int, typer.Option(help="Timed passes of each forward and shape.")] = 21,
    threads: Annotated[int, typer.Option()] = 2,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Time both forwards at every shape and print how many times as fast ours is."""
    torch.set_num_threads(threads)
    folder = resolve_model(model)
    loads = [
        LoadConfig(
            dtype=dtype,
            numerics=Numerics.FAST,
            kv_cache_tokens=16384,
            max_model_len=2048,
            model_impl=impl,
        )
        for impl in ModelImpl
    ]
    models = [load_model(folder, load).model for load in loads]
    cells = []
    for batch, k in track(_SHAPES, description="shapes"):
        ours_s, theirs_s = median_pass_s(models, batch, k, prompt_len, repeats)
        cells.append({"batch": batch, "k": k, "ours_ms": ours_s * 1e3})
        cells[-1] |= {"transformers_ms": theirs_s * 1e3, "ratio": theirs_s / ours_s}
    table = Table("B", "K", "ours, ms", "transformers, ms", "times as fast")
    for cell in cells:
        times = (f"{cell['ours_ms']:.1f}", f"{cell['transformers_ms']:.1f}")
        table.add_row(f"{cell['batch']}", f"{cell['k']}", *times, f"{cell['ratio']:.2f}")
    Console().print(table)
    if output is not None:
        result = {"model": model, "dtype": dtype, "threads": threads, "prompt_len": prompt_len}
        output.write_text(json.dumps({**result, "cells": cells}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
