"""A GPU against its bandwidth: passes and decoding of a pair of real shapes and random weights.

Needs torch and transformers alone. What a pass must read is its weights once and the keys and
values of its rows; the bound is that over the bandwidth that a plain sum reaches. Proposals come
from a recorded plain continuation, each right with a chosen probability; draft passes run for their
cost, and the target verifies in earnest. Each is measured in fast and in exact numerics of the
target, where it can keep them.

    python -m benchmarks.gpu_roofline --device cuda --output gpu_roofline.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_work import (
    SHAPES,
    Options,
    bytes_per_second,
    decoding,
    make_targets_exact,
    pair_of,
    passes,
    random_weights,
)
from specdec_core.models.numerics import Numerics


def main(arguments: Sequence[str] | None = None) -> None:
    asked = _parse(arguments)
    options = _options(asked)
    shapes = options.shape.target, options.shape.draft
    weights = [random_weights(shape, options) for shape in shapes]
    modes = {
        "recorded": pair_of(weights, options, is_recorded=True),
        "eager": pair_of(weights, options, is_recorded=False),
    }
    bandwidth = bytes_per_second(options.device)
    attention = modes["recorded"].target.block_attention
    result: dict[str, Any] = {
        "device": _device_name(options),
        "torch": torch.__version__,
        "gb_per_s": bandwidth / 1e9,
        "attention": "gathered blocks" if attention is None else "block table",
        "asked": vars(asked),
        "passes": [],
        "decoding": [],
    }
    decoded = ["recorded"] if asked.recorded_only else list(modes)
    for numerics in _numerics(asked):
        if numerics is Numerics.EXACT:
            result["exact"] = make_targets_exact(modes)
            if modes["recorded"].target.numerics is Numerics.FAST:
                break
        for batch in options.batches:
            result["passes"] += _shown(numerics, passes(modes, batch, bandwidth, options))
            _write(result, asked.output)
        for batch in options.batches:
            cells = [decoding(name, modes[name], batch, options) for name in decoded]
            result["decoding"] += _shown(numerics, cells)
            _write(result, asked.output)
    _write(result, asked.output)


def _numerics(asked: argparse.Namespace) -> list[Numerics]:
    """Fast ones first: the modes share their linears, which exact ones wrap."""
    both = [Numerics.FAST, Numerics.EXACT]
    return [one for one in both if asked.numerics in (one, "both")]


def _write(result: dict[str, Any], output: Path | None) -> None:
    """After each batch: a run that is cut short leaves what it has."""
    if output is not None:
        output.write_text(json.dumps(result, indent=1, default=str) + "\n")


def _shown(numerics: Numerics, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Printed, and returned, each with its numerics."""
    cells = [{"numerics": str(numerics), **cell} for cell in cells]
    for cell in cells:
        figures = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in cell.values())
        print("  ".join(f"{n} {v}" for n, v in zip(cell, figures, strict=True)), flush=True)
    return cells


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="8b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64,128")
    parser.add_argument("--context", type=int, default=512, help="tokens of every prompt")
    parser.add_argument("--k", type=int, default=4, help="drafted tokens of a round")
    parser.add_argument("--tokens", type=int, default=96, help="decoded for every prompt")
    parser.add_argument("--acceptance", type=float, default=0.7)
    parser.add_argument("--numerics", choices=["exact", "fast", "both"], default="both")
    parser.add_argument("--repeats", type=int, default=15, help="timed passes; medians count")
    parser.add_argument("--recorded-only", action="store_true", help="decode without eager passes")
    parser.add_argument("--output", type=Path, default=None, help="JSON file")
    return parser.parse_args(arguments)


def _options(asked: argparse.Namespace) -> Options:
    return Options(
        device=torch.device(asked.device),
        shape=SHAPES[asked.shape],
        dtype=getattr(torch, asked.dtype),
        batches=tuple(int(batch) for batch in asked.batches.split(",")),
        context=asked.context,
        k=asked.k,
        tokens=asked.tokens,
        acceptance=asked.acceptance,
        repeats=asked.repeats,
    )


def _device_name(options: Options) -> str:
    is_cuda = options.device.type == "cuda"
    return torch.cuda.get_device_name(options.device) if is_cuda else "cpu"


if __name__ == "__main__":
    main()
