"""What the coupled choice costs beside the verification pass that it follows.

8 sequences with K + 1 positions each, their logits taken from the pass itself. Pass and choices
alternate in one process, so that a busy machine slows all of them; medians are compared, by the
wall clock and by the CPU time that the process was given.

    python -m benchmarks.choice_cost --input spec_bench_240.jsonl --output F.json
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from benchmarks.prompts import chat_prompts
from deployments.demo_models import resolve_model
from specdec_core.choice_rules import ChoiceRow, ChoiceRules
from specdec_core.models.cached_model import Feed
from specdec_core.models.loading import DType, LoadConfig, load_model
from specdec_core.models.numerics import Numerics
from specdec_core.models.transformers_adapter import TransformersModel
from specdec_core.sampling import choose
from specdec_core.sampling_params import SamplingParams

SETTINGS = {
    "T 0.8, top_p 0.95": SamplingParams(temperature=0.8, top_p=0.95),
    "T 1, top_p 0.9": SamplingParams(top_p=0.9),
    "T 0.8, top_k 40, top_p 0.95": SamplingParams(temperature=0.8, top_k=40, top_p=0.95),
    "T 1, min_p 0.05": SamplingParams(min_p=0.05),
    "T 0.8, all penalties": SamplingParams(
        temperature=0.8,
        top_p=0.95,
        presence_penalty=0.5,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
    ),
    "T 0.8, untruncated": SamplingParams(temperature=0.8),
    "greedy": SamplingParams(temperature=0.0),
}
PASS = "the pass"


def main(
    prompts: Annotated[Path, typer.Option("--input", help="Prompts, JSON lines.")],
    model: Annotated[str, typer.Option(help="Folder, hub id or demo name.")] = "smollm2-135m",
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
    numerics: Annotated[Numerics, typer.Option()] = Numerics.FAST,
    batch: Annotated[int, typer.Option()] = 8,
    k: Annotated[int, typer.Option(help="Drafted tokens.")] = 4,
    repeats: Annotated[int, typer.Option()] = 30,
    threads: Annotated[int, typer.Option()] = 2,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Time a pass and the choice from its logits under several settings."""
    torch.set_num_threads(threads)
    config = LoadConfig(dtype=dtype, numerics=numerics, kv_cache_tokens=16384, max_model_len=2048)
    loaded = load_model(resolve_model(model), config).model
    bench = _Bench(loaded, chat_prompts(resolve_model(model), prompts, batch), k)
    tasks: dict[str, Callable[[], object]] = {PASS: bench.run_pass}
    tasks |= {name: bench.choice_of(params) for name, params in SETTINGS.items()}
    seconds = _measure(tasks, repeats)
    result = {"model": model, "dtype": dtype, "numerics": loaded.numerics, "threads": threads}
    result |= {"batch": batch, "k": k, "repeats": repeats, "median_ms": seconds}
    _print(seconds)
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n")


class _Bench:
    """Sequences that are verified again and again, and the logits of their last pass."""

    def __init__(
        self, model: TransformersModel, prompts: Sequence[tuple[int, ...]], k: int
    ) -> None:
        self._model = model
        self._ids = [_decode(model, prompt, k + 1) for prompt in prompts]
        self._k = k
        self._slots = [model.allocate() for _ in prompts]
        for slot, ids in zip(self._slots, self._ids, strict=True):
            model.score([Feed(slot, ids[: -k - 1], 0)])
        self._logits = self.run_pass()

    def run_pass(self) -> Tensor:
        fed = self._k + 1
        pairs = list(zip(self._slots, self._ids, strict=True))
        logits = self._model.score([Feed(slot, ids[-fed:], fed) for slot, ids in pairs])
        for slot, ids in pairs:
            self._model.rollback(slot, len(ids) - fed)
        return logits

    def choice_of(self, params: SamplingParams) -> Callable[[], list[int]]:
        rules = [ChoiceRules(params, len(ids) // 2) for ids in self._ids]
        rows = [
            ChoiceRow(each, len(ids) - self._k + j, ids)
            for each, ids in zip(rules, self._ids, strict=True)
            for j in range(self._k + 1)
        ]
        return lambda: choose(self._logits, rows, self._model.vocab_size)


def _decode(model: TransformersModel, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The prompt and `count` sampled tokens: a proposal that the target has made itself."""
    rules = ChoiceRules(SamplingParams(temperature=0.8, max_tokens=count), len(prompt))
    slot, ids = model.allocate(), prompt
    for _ in range(count):
        logits = model.score([Feed(slot, ids[model.cached_len(slot) :], 1)])
        ids = (*ids, *choose(logits, [ChoiceRow(rules, len(ids))], model.vocab_size))
    model.free(slot)
    return ids


def _measure(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of each task, by the wall clock and of CPU time, after two warm-ups."""
    wall: dict[str, list[float]] = {name: [] for name in tasks}
    cpu: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in track(range(repeats + 2), description="repeats"):
        for name, task in tasks.items():
            started = time.perf_counter(), time.process_time()
            task()
            ended = time.perf_counter(), time.process_time()
            if turn >= 2:
                wall[name].append(ended[0] - started[0])
                cpu[name].append(ended[1] - started[1])
    return {
        name: {
            "wall": 1e3 * statistics.median(wall[name]),
            "cpu": 1e3 * statistics.median(cpu[name]),
        }
        for name in tasks
    }


def _print(medians: dict[str, dict[str, float]]) -> None:
    table = Table("", "wall ms", "CPU ms", "share of the pass, wall", "CPU")
    whole = medians[PASS]
    for name, each in medians.items():
        shares = [f"{100 * each[clock] / whole[clock]:.1f} %" for clock in ("wall", "cpu")]
        table.add_row(name, f"{each['wall']:.1f}", f"{each['cpu']:.1f}", *shares)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
