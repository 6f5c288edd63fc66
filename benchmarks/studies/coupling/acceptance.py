"""What coupling costs: how often drafted tokens are accepted, beside rejection sampling.

Both are computed from the same pairs of distributions, the target's and a draft's behind the same
prefixes: prompts and what the target answers by plain decoding at that temperature. Coupling is
also counted with the noise that the service uses. Nothing here is timed.

    python -m benchmarks.studies.coupling.acceptance --input spec_bench_240.jsonl
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import Progress
from torch import Tensor
from transformers import AutoModelForCausalLM

from benchmarks.harness.machine import commit
from benchmarks.prompts import chat_prompts
from benchmarks.studies.coupling.drafts import DRAFTS
from benchmarks.studies.coupling.plot import plot
from benchmarks.studies.coupling.points import Answer, Point, choices, logits_behind, point_of
from deployments.demo.models import resolve_model
from specdec_core import PoolConfig, Request, SamplingParams
from specdec_core.config import Numerics
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.loader import DType, LoadConfig

_FIGURES = Path(__file__).with_suffix(".json")
_IMAGE = Path(__file__).with_suffix(".png")
_BATCH = 8
_LEAST_REPRODUCED = 0.998
"""Of plain decoding's tokens; another summation order flips fewer than 1 of 1,000."""


def main(
    input: Annotated[Path, typer.Option(help="Prompts, as for `specdec generate`.")],
    output: Annotated[Path, typer.Option(help="The figures, as JSON.")] = _FIGURES,
    image: Annotated[Path, typer.Option(help="The plot, a PNG file.")] = _IMAGE,
    model: Annotated[str, typer.Option(help="The target; the drafts are made from it.")] = (
        "smollm2-135m"
    ),
    sample: Annotated[int, typer.Option(help="Prompts, spread over the categories.")] = 16,
    max_tokens: Annotated[int, typer.Option(help="Positions behind each prompt.")] = 32,
    temperatures: Annotated[str, typer.Option(help="Separated by commas.")] = (
        "0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2"
    ),
    spec_tokens: Annotated[int, typer.Option(help="K of the acceptance length.")] = 4,
    num_seeds: Annotated[int, typer.Option(help="Seeds counted at each position.")] = 8,
    threads: Annotated[int, typer.Option(help="Torch threads.")] = 1,
) -> None:
    """Compute the acceptance of coupled and of rejection sampling; write figures and a plot."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    folder = str(resolve_model(model))
    prompts = chat_prompts(folder, input, sample)
    levels = [float(part) for part in temperatures.split(",")]
    with Progress() as progress:
        answers = _decode_plainly(folder, prompts, levels, max_tokens, progress)
        points = list(_points(folder, answers, spec_tokens, num_seeds, progress))
    figures = {
        "commit": commit(),
        "machine": _machine(threads),
        "model": model,
        "dtype": DType.FLOAT32.value,
        "num_prompts": len(prompts),
        "max_tokens": max_tokens,
        "num_draft_tokens": spec_tokens,
        "num_seeds": num_seeds,
        "points": [asdict(point) for point in points],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(figures, indent=1) + "\n")
    plot(figures, image)
    typer.echo(f"{output}\n{image}")


def _decode_plainly(
    folder: str,
    prompts: Sequence[tuple[int, ...]],
    temperatures: Sequence[float],
    max_tokens: int,
    progress: Progress,
) -> list[Answer]:
    """Every prompt at every temperature; answers of one prompt stand together."""
    load = LoadConfig(
        dtype=DType.FLOAT32,
        device="cpu",
        max_model_len=4096,
        kv_cache_tokens=_BATCH * 4096,
        numerics=Numerics.FAST,
    )
    config = PoolConfig(max_group_size=_BATCH, window=_BATCH)
    engine = Engine.load(folder, pool=config, load=load, algorithm=AlgorithmName.AUTOREGRESSIVE)
    asked = [(prompt, temperature) for prompt in prompts for temperature in temperatures]
    requests = [
        Request(
            request_id=str(index),
            prompt_token_ids=prompt,
            params=SamplingParams(temperature=temperature, seed=index, max_tokens=max_tokens),
            end_token_ids=engine.end_token_ids,
        )
        for index, (prompt, temperature) in enumerate(asked)
    ]
    emitted: list[list[int]] = [[] for _ in asked]
    bar = progress.add_task("plain decoding", total=len(requests))
    for event in engine.generate(requests):
        emitted[int(event.request_id)] += event.token_ids
        progress.advance(bar, float(event.finish_reason is not None))
    return [
        Answer(request.prompt_token_ids, tuple(ids), request.params)
        for request, ids in zip(requests, emitted, strict=True)
    ]


def _points(
    folder: str, answers: list[Answer], num_draft_tokens: int, num_seeds: int, progress: Progress
) -> Iterator[Point]:
    target = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    target_logits = _logits(target, answers, "target", progress)
    _check_that_they_chose(target_logits, answers)
    levels = sorted({answer.params.temperature for answer in answers})
    for name, make_draft in DRAFTS.items():
        draft_logits = _logits(make_draft(target), answers, name, progress)
        bar = progress.add_task(f"{name}: temperatures", total=len(levels))
        for level in levels:
            chosen = [i for i, answer in enumerate(answers) if answer.params.temperature == level]
            yield point_of(
                name,
                [answers[i] for i in chosen],
                [target_logits[i] for i in chosen],
                [draft_logits[i] for i in chosen],
                num_draft_tokens=num_draft_tokens,
                num_seeds=num_seeds,
            )
            progress.advance(bar)


def _logits(model: Any, answers: list[Answer], name: str, progress: Progress) -> list[Tensor]:
    bar = progress.add_task(f"{name}: logits", total=len(answers))
    return list(progress.track(logits_behind(model, answers), task_id=bar))


def _check_that_they_chose(logits: list[Tensor], answers: list[Answer]) -> None:
    """Plain decoding must have had these logits, but for rounding: its tokens come out again."""
    equal, total = 0, 0
    for answer, logits_NV in zip(answers, logits, strict=True):
        again = choices(answer, logits_NV, answer.params.seed)
        equal += sum(x == y for x, y in zip(again, answer.emitted, strict=True))
        total += len(again)
    assert equal >= _LEAST_REPRODUCED * total, f"only {equal} of {total} tokens were chosen again"


def _machine(threads: int) -> dict[str, str | int]:
    return {
        "architecture": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    typer.run(main)
