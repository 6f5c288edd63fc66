"""Seconds of a pass of several models over the same rows, in turns: medians of alternating passes.

python -m benchmarks.pass_times exact --output F.json      # exact and fast numerics
python -m benchmarks.pass_times kernels --output F.json    # our kernels, PyTorch, transformers
python -m benchmarks.pass_times pair --output F.json       # target and draft, for the simulation
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness.commands import command_line, write_json
from benchmarks.synthetic import DrafterKind
from benchmarks.synthetic_models import ModelOptions, load_draft, load_target
from deployments.cli.command import command
from deployments.config.flags import flag
from deployments.demo.models import resolve_model
from specdec_core.config import ModelImpl, Numerics
from specdec_core.loading.loader import DType, LoadConfig, load_model
from specdec_core.model import score
from specdec_core.worker.model_runner import ModelRunner

Shape = tuple[int, int]
"""(sequences, K): K + 1 tokens of each are fed. Prompts of a pair are fed so, too."""

_EXACT_SHAPES = [(batch, k) for batch in (1, 4, 8, 16, 32) for k in (0, 1, 4, 8)]
_KERNEL_SHAPES = [*((batch, k) for batch in (1, 4, 8, 16, 32) for k in (0, 4)), (8, 8)]
_PAIR_SHAPES = [(1, 0), (8, 0), (16, 0), (1, 4), (8, 4), (16, 4), (1, 127), (4, 127)]
_PREFILL = (1, 511)
_NUM_WARM_UPS = 2

app = command_line(__doc__)


@dataclass(frozen=True, kw_only=True)
class ExactOptions:
    """The flags of `exact`."""

    model: str = flag("smollm2-135m", "Folder, hub ID or demo name.")
    dtype: DType = flag(DType.BFLOAT16, "Of weights and caches.")
    prompt_len: int = flag(200, "Cached tokens of every row.")
    repeats: int = flag(15, "Timed passes of each model and shape.")
    threads: int = flag(2, "Torch threads.")
    output: Path | None = flag(None, "JSON file.")


@dataclass(frozen=True, kw_only=True)
class KernelsOptions(ExactOptions):
    """The flags of `kernels`."""

    repeats: int = flag(21, "Timed passes of each model and shape.")
    numerics: Numerics = flag(Numerics.EXACT, "Of the kernels; the others are fast.")


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """The flags of `pair`."""

    target: str = flag("random-tinyllama", "random-NAME of benchmarks/paper.")
    prompt_len: int = flag(128, "Cached tokens of every row.")
    repeats: int = flag(7, "Timed passes of each model and shape.")
    output: Path | None = flag(None, "JSON file.")


@command(app)
def exact(options: ExactOptions) -> None:
    """Cost of exact numerics: verification passes and a prefill, exact and fast."""
    loads = {one.value: {"numerics": one} for one in (Numerics.EXACT, Numerics.FAST)}
    _compare(loads, [*_EXACT_SHAPES, _PREFILL], options)


@command(app)
def kernels(options: KernelsOptions) -> None:
    """Gain of our kernels over PyTorch's operations, and over the forward of transformers with the
    same packed weights, cache and attention."""
    loads = {
        "kernels": {"numerics": options.numerics},
        "eager": {"enforce_eager": True},
        "transformers": {"model_impl": ModelImpl.TRANSFORMERS},
    }
    _compare(loads, _KERNEL_SHAPES, options)


@command(app)
def pair(options: PairOptions) -> None:
    """CPU time of passes of a target and a draft, as flags of `specdec simulate capacity`.

    Random weights in the shapes of a pair, one thread. Other processes touch CPU time least.
    """
    torch.set_num_threads(1)
    models_of = ModelOptions(
        target=options.target,
        draft="",
        dtype=DType.BFLOAT16,
        numerics=Numerics.FAST,
        device="cpu",
        scale=1,
        max_len=options.prompt_len + 256,
        max_sequences=max(rows for rows, _ in _PAIR_SHAPES),
    )
    draft = load_draft(models_of, DrafterKind.DRAFT)
    assert draft is not None, "a random pair has one"
    models = {"verify_ms": load_target(models_of), "draft_ms": draft}
    found: dict[str, Any] = {"pair": options.target, **{name: {} for name in models}}
    for rows, k in track(_PAIR_SHAPES, description="shapes"):
        sizes = rows, k, options.prompt_len, options.repeats
        seconds = median_pass_s(list(models.values()), *sizes, time.thread_time)
        for name, passed_s in zip(models, seconds, strict=True):
            found[name][str(rows * (k + 1))] = 1e3 * passed_s
    for name in models:
        flag = ",".join(f"{rows}:{ms:.2f}" for rows, ms in found[name].items())
        Console().print(f"--{name.replace('_', '-')} {flag}", highlight=False)
    write_json(found, options.output)


def _compare(
    loads: Mapping[str, Mapping[str, Any]], shapes: Sequence[Shape], options: ExactOptions
) -> None:
    """Time one model loaded in several ways, print each over the first, write the figures."""
    torch.set_num_threads(options.threads)
    fast = {"dtype": options.dtype, "numerics": Numerics.FAST, "kv_cache_tokens": 32768}
    folder = resolve_model(options.model)
    models = [
        load_model(folder, LoadConfig(**{**fast, **own}, max_model_len=2048)).model
        for own in loads.values()
    ]
    cells: list[dict[str, float]] = []
    table = Table("B", "K", *(f"{name}, ms" for name in loads), "each over the first")
    for batch, k in track(shapes, description="shapes"):
        seconds = median_pass_s(models, batch, k, options.prompt_len, options.repeats)
        ms = {f"{name}_ms": 1e3 * one for name, one in zip(loads, seconds, strict=True)}
        cells.append({"batch": batch, "k": k, **ms})
        ratios = " ".join(f"{one / seconds[0]:.2f}" for one in seconds[1:])
        table.add_row(str(batch), str(k), *(f"{one:.1f}" for one in ms.values()), ratios)
    Console().print(table)
    facts = {name: getattr(options, name) for name in ("model", "dtype", "threads", "prompt_len")}
    found = {**facts, "class_table": str(models[0].class_table), "cells": cells}
    write_json(found, options.output)


def median_pass_s(
    models: Sequence[ModelRunner],
    batch: int,
    k: int,
    prompt_len: int,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the median seconds of each model for `batch` rows of k + 1 tokens, with slightly
    different cached lengths."""
    lengths = [prompt_len + 7 * (row % 5) for row in range(batch)]
    slots = [[_cached_slot(model, length) for length in lengths] for model in models]
    seconds: list[list[float]] = [[] for _ in models]
    for turn in range(repeats + _NUM_WARM_UPS):
        for model, used, measured in zip(models, slots, seconds, strict=True):
            feeds = [(slot, range(10, 11 + k), k + 1) for slot in used]
            started = clock()
            score(model, feeds)
            if turn >= _NUM_WARM_UPS:
                measured.append(clock() - started)
            for slot, length in zip(used, lengths, strict=True):
                model.rollback(slot, length)
    for model, used in zip(models, slots, strict=True):
        for slot in used:
            model.free(slot)
    return [statistics.median(measured) for measured in seconds]


def _cached_slot(model: ModelRunner, length: int) -> int:
    slot = model.allocate()
    score(model, [(slot, range(100, 100 + length), 0)])
    return slot


if __name__ == "__main__":
    app()
