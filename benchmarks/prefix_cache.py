"""What the prefix cache saves: time to the first token of two prompts that begin alike.

The first computes the shared beginning, the second finds it. Both run through the engine as it is
configured by default, prefill in chunks, and once more without the cache, whose ids must be theirs.

    python -m benchmarks.prefix_cache --output benchmarks/results/prefix_cache.json
"""

from __future__ import annotations

import json
import random
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track

from deployments.demo.models import resolve_model
from specdec_core import PoolConfig, Request, SamplingParams
from specdec_core.config import Numerics
from specdec_core.engine import Engine
from specdec_core.loading.loader import DType, LoadConfig, load_model

_NUM_TOKENS = 16
"""Emitted of every request: what is compared."""


def main(
    model: Annotated[str, typer.Option(help="Folder, hub id or demo name.")] = "smollm2-135m",
    dtype: Annotated[DType, typer.Option()] = DType.BFLOAT16,
    numerics: Annotated[Numerics, typer.Option()] = Numerics.EXACT,
    shared_len: Annotated[int, typer.Option(help="Tokens that both prompts begin with.")] = 1000,
    tail_len: Annotated[int, typer.Option(help="Tokens of each prompt's own.")] = 20,
    repeats: Annotated[int, typer.Option(help="Pairs, each of another beginning.")] = 5,
    threads: Annotated[int, typer.Option()] = 1,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Time pairs of requests and print the medians."""
    torch.set_num_threads(threads)
    load = LoadConfig(dtype=dtype, numerics=numerics, kv_cache_tokens=32768, max_model_len=2048)
    path = resolve_model(model)
    cached, plain = (
        Engine(load_model(path, replace(load, enable_prefix_caching=enable)).model)
        for enable in (True, False)
    )
    pairs = []
    for pair in track(range(-1, repeats), description="pairs"):
        prompts = _prompts(cached.vocab_size, shared_len, tail_len, seed=pair)
        (first_s, first), (second_s, second) = [_first_token_s(cached, ids) for ids in prompts]
        (first_plain_s, first_ids), (plain_s, second_ids) = [
            _first_token_s(plain, ids) for ids in prompts
        ]
        if pair >= 0:  # the one before warms both engines up
            pairs.append(
                {
                    "first_ms": first_s * 1e3,
                    "second_ms": second_s * 1e3,
                    "first_without_cache_ms": first_plain_s * 1e3,
                    "second_without_cache_ms": plain_s * 1e3,
                    "ratio": first_s / second_s,
                    "same_ids": (first, second) == (first_ids, second_ids),
                }
            )
    result = {"model": model, "dtype": dtype, "numerics": numerics, "threads": threads}
    result |= {"shared_len": shared_len, "tail_len": tail_len}
    result |= {"prefill_chunk": PoolConfig().prefill_chunk, "pairs": pairs}
    result |= _medians(pairs)
    Console().print(result)
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n")


def _prompts(vocab_size: int, shared_len: int, tail_len: int, seed: int) -> list[tuple[int, ...]]:
    rng = random.Random(f"pair/{seed}")  # a number and its negative would be one seed
    ids = [rng.randrange(vocab_size) for _ in range(shared_len + 2 * tail_len)]
    shared, tails = ids[:shared_len], ids[shared_len:]
    return [(*shared, *tails[:tail_len]), (*shared, *tails[tail_len:])]


def _first_token_s(engine: Engine, prompt: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
    """Seconds from the request to its first token, and all of its tokens."""
    params = SamplingParams(temperature=0.0, max_tokens=_NUM_TOKENS)
    request = Request(request_id="r", prompt_token_ids=prompt, params=params)
    tokens: list[int] = []
    first_s = 0.0
    started = time.perf_counter()
    for event in engine.generate([request]):
        if event.token_ids and not tokens:
            first_s = time.perf_counter() - started
        tokens += event.token_ids
    return first_s, tuple(tokens)


def _medians(pairs: list[dict[str, float]]) -> dict[str, object]:
    names = [name for name in pairs[0] if name != "same_ids"]
    medians = {name: statistics.median(pair[name] for pair in pairs) for name in names}
    return {"median": medians, "same_ids": all(pair["same_ids"] for pair in pairs)}


if __name__ == "__main__":
    typer.run(main)
