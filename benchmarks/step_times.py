"""What `specdec simulate capacity` asks for: passes of a target and of a draft by fed tokens.

Random weights in the shapes of a pair, one thread and its CPU time, which other processes touch
least; medians over repeats, both models in turns.

    python -m benchmarks.step_times --output benchmarks/results/step_times.json
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import track

from benchmarks.pass_times import median_pass_s
from benchmarks.synthetic import DrafterKind
from benchmarks.synthetic_models import ModelOptions, load_draft, load_target
from specdec_core.config import Numerics
from specdec_core.loading.loader import DType

_SHAPES = ((1, 0), (8, 0), (16, 0), (1, 4), (8, 4), (16, 4), (1, 127), (4, 127))
"""(sequences, K): K + 1 tokens each are fed. Prompts are fed so, too."""


def main(
    target: Annotated[str, typer.Option(help="random-NAME of benchmarks/paper.")] = (
        "random-tinyllama"
    ),
    prompt_len: int = 128,
    repeats: int = 7,
    output: Path | None = None,
) -> None:
    """Print both as flags; the ratio of a draft's step to a target's is what layouts depend on."""
    torch.set_num_threads(1)
    options = ModelOptions(
        target=target,
        draft="",
        dtype=DType.BFLOAT16,
        numerics=Numerics.FAST,
        device="cpu",
        scale=1,
        max_len=prompt_len + 256,
        max_sequences=max(rows for rows, _ in _SHAPES),
    )
    draft = load_draft(options, DrafterKind.DRAFT)
    assert draft is not None, "a random pair has one"
    pair = [load_target(options), draft]
    verify_ms: dict[str, float] = {}
    draft_ms: dict[str, float] = {}
    for rows, k in track(_SHAPES, description="shapes"):
        target_s, draft_s = median_pass_s(pair, rows, k, prompt_len, repeats, time.thread_time)
        verify_ms[str(rows * (k + 1))] = 1e3 * target_s
        draft_ms[str(rows * (k + 1))] = 1e3 * draft_s
    found: dict[str, Any] = {
        "pair": target,
        "verify_ms": verify_ms,
        "draft_ms": draft_ms,
    }
    for name in ("verify_ms", "draft_ms"):
        flag = ",".join(f"{rows}:{ms:.2f}" for rows, ms in found[name].items())
        Console().print(f"--{name.replace('_', '-')} {flag}", highlight=False)
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
