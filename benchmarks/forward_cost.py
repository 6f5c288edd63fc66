"""What our own forward and its kernels save: one pass of B rows of K + 1 tokens.

Three forwards of the same model, in turns, medians compared: with our kernels; the same with
PyTorch's operations over packed weights; that of transformers over the same packed weights, our
cache and attention.

    python -m benchmarks.forward_cost --output benchmarks/results/forward_cost.json
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.pass_times import median_pass_s
from deployments.demo.models import resolve_model
from specdec_core.config import ModelImpl, Numerics
from specdec_core.loading.loader import DType, LoadConfig, load_model

_SHAPES = (*((batch, k) for batch in (1, 4, 8, 16, 32) for k in (0, 4)), (8, 8))
"""(batch, K)"""


def main(
    model: Annotated[str, typer.Option(help="Folder, hub id or demo name.")] = "smollm2-135m",
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
    prompt_len: Annotated[int, typer.Option(help="Cached tokens of every row.")] = 200,
    repeats: Annotated[int, typer.Option(help="Timed passes of each forward and shape.")] = 21,
    threads: Annotated[int, typer.Option()] = 2,
    numerics: Annotated[
        Numerics, typer.Option(help="Of the kernels; the others are fast.")
    ] = Numerics.EXACT,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Time the forwards at every shape and print how many times as fast the kernels are."""
    torch.set_num_threads(threads)
    folder = resolve_model(model)
    fast = LoadConfig(
        dtype=dtype, numerics=Numerics.FAST, kv_cache_tokens=32768, max_model_len=2048
    )
    loads = {
        "kernels": replace(fast, numerics=numerics),
        "eager": replace(fast, enforce_eager=True),
        "transformers": replace(fast, model_impl=ModelImpl.TRANSFORMERS),
    }
    models = [load_model(folder, load).model for load in loads.values()]
    cells = []
    for batch, k in track(_SHAPES, description="shapes"):
        seconds = median_pass_s(models, batch, k, prompt_len, repeats)
        times = {f"{name}_ms": s * 1e3 for name, s in zip(loads, seconds, strict=True)}
        cells.append({"batch": batch, "k": k, **times, "ratio": seconds[1] / seconds[0]})
    table = Table("B", "K", *(f"{name}, ms" for name in loads), "eager / kernels")
    for cell in cells:
        shown = (f"{cell[f'{name}_ms']:.1f}" for name in loads)
        table.add_row(f"{cell['batch']}", f"{cell['k']}", *shown, f"{cell['ratio']:.2f}")
    Console().print(table)
    if output is not None:
        result = {"model": model, "dtype": dtype, "threads": threads, "prompt_len": prompt_len}
        output.write_text(json.dumps({**result, "cells": cells}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
