"""Plain decoding here against transformers' `generate()`: same prompts, batch, dtype, tokens.

Both decode every prompt to exactly --max-tokens greedy tokens, in turn, several times in one
process; the ratio is that of the medians. Prefill is included, loading is not.

    python -m benchmarks.plain_vs_transformers --input spec_bench_240.jsonl --output ratio.json
    python -m benchmarks.plain_vs_transformers --input F --batch-sizes 1,2,4,8 --output ratio.json
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import track
from transformers import AutoModelForCausalLM

from benchmarks.prompts import chat_prompts
from deployments.demo.models import resolve_model
from specdec_core import PoolConfig, Request, SamplingParams
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.loader import DType, LoadConfig, load_model
from specdec_core.model import CachedModel

PAD = 0


def main(
    input: Annotated[Path, typer.Option(help="Prompts, as for `specdec generate`.")],
    output: Annotated[Path, typer.Option(help="The figures, as JSON.")],
    model: Annotated[str, typer.Option()] = "smollm2-135m",
    batch_sizes: Annotated[str, typer.Option(help="Each with --batches times its prompts.")] = "8",
    batches: Annotated[int, typer.Option()] = 2,
    max_tokens: Annotated[int, typer.Option()] = 64,
    repeats: Annotated[int, typer.Option()] = 3,
    threads: Annotated[int, typer.Option()] = 2,
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
) -> None:
    torch.set_num_threads(threads)
    folder = str(resolve_model(model))
    sizes = [int(size) for size in batch_sizes.split(",")]
    load = LoadConfig(dtype=dtype, device="cpu", max_model_len=4096, kv_cache_tokens=32768)
    pair = _Pair(
        load_model(folder, load).model,
        AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype.value)),
        max_tokens,
    )
    figures = {
        "model": model,
        "dtype": dtype.value,
        "max_tokens": max_tokens,
        "threads": threads,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "batches": [
            pair.compare(size, chat_prompts(folder, input, batches * size), repeats)
            for size in sizes
        ],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(figures, indent=1) + "\n")
    for line in figures["batches"]:
        typer.echo(f"batch {line['batch']}: {line['tokens_per_second']}  ratio {line['ratio']:.2f}")


@dataclass(frozen=True)
class _Pair:
    ours: CachedModel
    theirs: Any
    max_tokens: int

    def compare(
        self, batch: int, prompts: Sequence[tuple[int, ...]], repeats: int
    ) -> dict[str, Any]:
        """Both in turns, once more than `repeats` times: the first is a warm-up."""
        engine = Engine(
            self.ours,
            config=PoolConfig(max_group_size=batch, window=batch),
            algorithm=AlgorithmName.AUTOREGRESSIVE,
        )
        seconds: dict[str, list[float]] = {"specdec": [], "transformers": []}
        for _ in track(range(repeats + 1), description=f"batch {batch} (the first is a warm-up)"):
            seconds["specdec"].append(_timed(lambda: _decode(engine, prompts, self.max_tokens)))
            seconds["transformers"].append(
                _timed(lambda: _generate(self.theirs, prompts, batch, self.max_tokens))
            )
        tokens = len(prompts) * self.max_tokens
        speeds = {name: tokens / statistics.median(times[1:]) for name, times in seconds.items()}
        return {
            "batch": batch,
            "prompts": len(prompts),
            "prompt_tokens": sum(len(prompt) for prompt in prompts),
            "seconds": seconds,
            "tokens_per_second": speeds,
            "ratio": speeds["specdec"] / speeds["transformers"],
        }


def _timed(call: Any) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _decode(engine: Engine, prompts: Sequence[tuple[int, ...]], max_tokens: int) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    requests = [
        Request(request_id=str(index), prompt_token_ids=prompt, params=params)
        for index, prompt in enumerate(prompts)
    ]
    emitted = sum(len(event.token_ids) for event in engine.generate(requests))
    assert emitted == len(prompts) * max_tokens


def _generate(model: Any, prompts: Sequence[tuple[int, ...]], batch: int, max_tokens: int) -> None:
    for first in range(0, len(prompts), batch):
        rows = prompts[first : first + batch]
        longest = max(len(row) for row in rows)
        padded = [[PAD] * (longest - len(row)) + list(row) for row in rows]
        mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
        output = model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            max_new_tokens=max_tokens,
            min_new_tokens=max_tokens,
            do_sample=False,
            pad_token_id=PAD,
        )
        assert output.shape[1] == longest + max_tokens


if __name__ == "__main__":
    typer.run(main)
