"""A GPU against its bandwidth: passes and decoding of a pair of real shapes and random weights.

Needs torch and transformers alone. What a pass must read is its weights once and the keys and
values of its rows; the bound is that over the bandwidth that a plain sum reaches. Proposals come
from a recorded plain continuation, each right with a chosen probability; draft passes run for their
cost, and the target verifies in earnest.

    python -m benchmarks.gpu_roofline --device cuda --output gpu_roofline.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.paper.shapes import PAIR_SHAPES, PairShape, Shape, random_model
from benchmarks.synthetic import Recording, plain_engine, requests_for, synthetic_engine
from specdec_core import SamplingParams
from specdec_core.algorithms.speculative_round import Turn, propose
from specdec_core.choice_rules import ChoiceRules
from specdec_core.engine import Engine
from specdec_core.models.cached_model import Feed
from specdec_core.models.fused_decoder import FusedDecoder, fuse
from specdec_core.models.placing import Placing, place
from specdec_core.models.transformers_adapter import TransformersModel
from specdec_core.request import Request

TINY = PairShape(
    target=Shape(num_layers=2, hidden=64, ffn=128, num_heads=4, num_kv_heads=2, head_dim=64),
    draft=Shape(num_layers=1, hidden=64, ffn=64, num_heads=2, num_kv_heads=2, head_dim=64),
    vocab_size=256,
)
SHAPES = {"8b": PAIR_SHAPES["qwen3"], "tiny": TINY}
"""8B with a 0.6B draft: Qwen3's sizes."""
_NUM_WARM_UPS = 3
_GREEDY = SamplingParams(temperature=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    device: torch.device
    shape: PairShape
    dtype: torch.dtype
    batches: tuple[int, ...]
    context: int
    k: int
    tokens: int
    """Decoded for every prompt."""
    acceptance: float
    repeats: int

    @property
    def max_len(self) -> int:
        """Of a prompt, its answer and proposals, in whole blocks."""
        return -(-(self.context + self.tokens + 2 * self.k + 64) // 64) * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Target and draft over the same weights, with recorded passes or without."""

    target: TransformersModel
    draft: TransformersModel


def main(arguments: Sequence[str] | None = None) -> None:
    asked = _parse(arguments)
    options = _options(asked)
    weights = [_weights(shape, options) for shape in (options.shape.target, options.shape.draft)]
    modes = {"recorded": _pair(weights, options, False), "eager": _pair(weights, options, True)}
    bytes_per_second = _bytes_per_second(options.device)
    result: dict[str, Any] = {
        "machine": _machine(options) | {"gb_per_s": bytes_per_second / 1e9},
        "asked": vars(asked) | {"output": None},
        "passes": [
            cell
            for batch in options.batches
            for cell in _passes(modes, batch, bytes_per_second, options)
        ],
    }
    _print_table("passes", result["passes"])
    names = ["recorded"] if asked.recorded_only else list(modes)
    result["decoding"] = [
        _decoding(name, modes[name], batch, options) for name in names for batch in options.batches
    ]
    _print_table("decoding", result["decoding"])
    if asked.output is not None:
        asked.output.write_text(json.dumps(result, indent=1, default=str) + "\n")


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


def _machine(options: Options) -> dict[str, Any]:
    is_cuda = options.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(options.device) if is_cuda else "cpu",
        "torch": torch.__version__,
    }


def _weights(shape: Shape, options: Options) -> FusedDecoder:
    model = random_model(
        shape,
        options.shape.vocab_size,
        seed=0,
        dtype=options.dtype,
        device=options.device,
        max_len=options.max_len,
    )
    decoder = fuse(model)
    assert isinstance(decoder, FusedDecoder)
    return decoder


def _pair(weights: Sequence[FusedDecoder], options: Options, is_eager: bool) -> Pair:
    placing = Placing(
        vocab_size=options.shape.vocab_size,
        max_model_len=options.max_len,
        kv_cache_tokens=(max(options.batches) + 1) * options.max_len,
        enable_prefix_caching=False,
        enforce_eager=is_eager,
    )
    target, draft = (place(network, placing) for network in weights)
    return Pair(target=target, draft=draft)


def _passes(
    modes: dict[str, Pair], batch: int, bytes_per_second: float, options: Options
) -> list[dict[str, Any]]:
    """Plain decoding, verification, and the draft's K passes, against what each must read."""
    cells = []
    for name, pair in modes.items():
        target_read_s, draft_read_s = (
            _read_bytes(model, batch, options) / bytes_per_second
            for model in (pair.target, pair.draft)
        )
        runs = {
            "decode": (_score_s(pair.target, batch, 1, options), target_read_s),
            "verify": (_score_s(pair.target, batch, options.k + 1, options), target_read_s),
            "draft": (_draft_s(pair.draft, batch, options), options.k * draft_read_s),
        }
        for work, (seconds, bound_s) in runs.items():
            figures = {
                "ms": seconds * 1e3,
                "bound_ms": bound_s * 1e3,
                "of_bound": bound_s / seconds,
            }
            cells.append({"batch": batch, "mode": name, "work": work, **figures})
    return cells


def _read_bytes(model: TransformersModel, batch: int, options: Options) -> int:
    """Of the weights, once, and the rows' keys and values; of the embedding only rows are read."""
    assert isinstance(model.module, FusedDecoder)
    weights = sum(p.numel() * p.itemsize for p in model.module.parameters())
    embedding = model.module.embedding.weight
    kv_bytes = batch * options.context * model.cache_shape.bytes_per_token
    return weights - embedding.numel() * embedding.itemsize + kv_bytes


@torch.inference_mode()
def _bytes_per_second(device: torch.device) -> float:
    """Of a sum over memory, many times what a cache holds."""
    is_cuda = device.type == "cuda"
    numbers = torch.ones(2**30 if is_cuda else 2**25, device=device)
    seconds = []
    for _ in range(5):
        _wait(device)
        started = time.perf_counter()
        numbers.sum()
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return numbers.numel() * numbers.itemsize / min(seconds)


def _score_s(model: TransformersModel, batch: int, count: int, options: Options) -> float:
    slots = _filled(model, batch, options.context)

    def run() -> None:
        model.score([Feed(slot, range(3, 3 + count), count) for slot in slots])

    return _median_s(model, slots, run, options)


def _draft_s(model: TransformersModel, batch: int, options: Options) -> float:
    slots = _filled(model, batch, options.context)
    rules = ChoiceRules(_GREEDY, prompt_len=options.context)
    turns = [Turn(slot, (3,), (), options.k, rules) for slot in slots]
    return _median_s(model, slots, lambda: propose(model, turns), options)


def _filled(model: TransformersModel, batch: int, context: int) -> list[int]:
    slots = [model.allocate() for _ in range(batch)]
    for slot in slots:
        model.score([Feed(slot, [1] * context, 0)])
    return slots


def _median_s(
    model: TransformersModel, slots: Sequence[int], run: Callable[[], object], options: Options
) -> float:
    seconds = []
    for turn in range(options.repeats + _NUM_WARM_UPS):
        _wait(options.device)
        started = time.perf_counter()
        run()
        _wait(options.device)
        if turn >= _NUM_WARM_UPS:
            seconds.append(time.perf_counter() - started)
        for slot in slots:
            model.rollback(slot, options.context)
    for slot in slots:
        model.free(slot)
    return statistics.median(seconds)


def _decoding(name: str, pair: Pair, batch: int, options: Options) -> dict[str, Any]:
    """Tokens per second of plain decoding and of exspec, all rows running, prefill left out."""
    generator = torch.Generator().manual_seed(batch)
    ids = torch.randint(options.shape.vocab_size, (batch, options.context), generator=generator)
    prompts = tuple(tuple(row) for row in ids.tolist())
    params = SamplingParams(temperature=0.0, max_tokens=options.tokens)
    requests = requests_for(prompts, params)
    plain = [_steady(plain_engine(pair.target, batch), requests) for _ in range(2)][-1]
    recording = Recording(prompts=prompts, answers=plain.answers, params=params)
    book = recording.book(pair.target, options.acceptance)
    exspec = [
        _steady(
            synthetic_engine(
                pair.target, pair.draft, book, batch=batch, num_draft_tokens=options.k
            ),
            requests,
        )
        for _ in range(2)
    ][-1]
    return {
        "batch": batch,
        "mode": name,
        "plain": plain.tokens_per_second,
        "exspec": exspec.tokens_per_second,
        "ratio": exspec.tokens_per_second / plain.tokens_per_second,
        "same ids": exspec.answers == plain.answers,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """A stretch of decoding in which every row took part."""

    answers: tuple[tuple[int, ...], ...]
    tokens_per_second: float


def _steady(engine: Engine, requests: Sequence[Request]) -> Steady:
    """From the round in which the last request emits its first token to the one in which one ends;
    every round ends with ids on the host, so that no device is to be waited for."""
    answers: dict[str, list[int]] = {request.request_id: [] for request in requests}
    for request in requests:
        engine.add_request(request)
    num_tokens, num_ended, seconds = 0, 0, 0.0
    while engine.has_work:
        is_steady = all(answers.values()) and not num_ended
        started = time.perf_counter()
        events = engine.step()
        seconds += (time.perf_counter() - started) * is_steady
        for event in events:
            answers[event.request_id] += event.token_ids
            num_tokens += len(event.token_ids) * is_steady
            num_ended += event.finish_reason is not None
    return Steady(
        answers=tuple(tuple(answer) for answer in answers.values()),
        tokens_per_second=num_tokens / seconds,
    )


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _print_table(title: str, cells: Sequence[dict[str, Any]]) -> None:
    print(title)
    print("  ".join(f"{name:>10}" for name in cells[0]))
    for cell in cells:
        print("  ".join(f"{_shown(value):>10}" for value in cell.values()), flush=True)


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
