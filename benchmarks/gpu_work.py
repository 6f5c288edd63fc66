"""What benchmarks/gpu_roofline.py measures: passes and decoding of a pair with random weights."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.paper.answer_book import AnswerBook
from benchmarks.paper.recorded_draft import RecordedDraft
from benchmarks.paper.shapes import PAIR_SHAPES, PairShape, Shape, random_model
from benchmarks.synthetic import plain_engine, requests_for, synthetic_engine
from specdec_core import SamplingParams
from specdec_core.algorithms.speculative_round import Turn, propose
from specdec_core.choice_rules import ChoiceRules
from specdec_core.engine import Engine
from specdec_core.models.cached_model import Feed
from specdec_core.models.exact import make_exact
from specdec_core.models.fused_decoder import FusedDecoder, fuse
from specdec_core.models.numerics import NotExactError
from specdec_core.models.placing import MAX_TOKENS, block_attention_for
from specdec_core.models.static_shapes.recorder import DirectRecorder, recorder_for
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


def random_weights(shape: Shape, options: Options) -> FusedDecoder:
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


def pair_of(weights: Sequence[FusedDecoder], options: Options, *, is_recorded: bool) -> Pair:
    """On a CPU recorded passes run as they are: that they run is what is seen there."""
    recorder = (recorder_for(options.device) or DirectRecorder()) if is_recorded else None
    target, draft = (
        TransformersModel(
            network,
            vocab_size=options.shape.vocab_size,
            kv_cache_tokens=(max(options.batches) + 1) * options.max_len,
            max_model_len=options.max_len,
            max_tokens_per_pass=MAX_TOKENS["cuda"],
            enable_prefix_caching=False,
            recorder=recorder,
            block_attention=block_attention_for(network) if is_recorded else None,
        )
        for network in weights
    )
    return Pair(target=target, draft=draft)


def make_targets_exact(modes: dict[str, Pair]) -> str:
    """The classes that were found, or why there are none. The modes share their weights, so that
    all targets keep exact numerics afterwards or none does."""
    try:
        tables = [make_exact(pair.target) for pair in modes.values()]
    except NotExactError as error:
        for pair in modes.values():
            pair.target.class_table = None
        return f"refused: {error}"
    return str(tables[0])


def passes(
    modes: dict[str, Pair], batch: int, bandwidth: float, options: Options
) -> list[dict[str, Any]]:
    """Plain decoding, verification, and the draft's K passes, against what each must read."""
    cells = []
    for name, pair in modes.items():
        target_read_s, draft_read_s = (
            _read_bytes(model, batch, options) / bandwidth for model in (pair.target, pair.draft)
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
def bytes_per_second(device: torch.device) -> float:
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


def decoding(name: str, pair: Pair, batch: int, options: Options) -> dict[str, Any]:
    """Tokens per second of plain decoding and of exspec, all rows running, prefill left out.

    What the target chooses is arranged as well: random weights have near ties, and a run that took
    another turn at one would accept nothing of a recorded continuation from there on.
    """
    generator = torch.Generator().manual_seed(batch)
    size = (batch, options.context + options.tokens)
    rows = torch.randint(options.shape.vocab_size, size, generator=generator).tolist()
    prompts = [tuple(row[: options.context]) for row in rows]
    answers = [tuple(row[options.context :]) for row in rows]
    requests = requests_for(prompts, SamplingParams(temperature=0.0, max_tokens=options.tokens))
    size_of_vocabulary = options.shape.vocab_size

    def book(probability: float) -> AnswerBook:
        return AnswerBook(prompts, answers, probability=probability, vocab_size=size_of_vocabulary)

    target = RecordedDraft(pair.target, book(1.0))

    def exspec_engine() -> Engine:
        proposals = book(options.acceptance)
        return synthetic_engine(
            target, pair.draft, proposals, batch=batch, num_draft_tokens=options.k
        )

    # The first of two runs warms up: it records what the second replays.
    plain = [_steady(plain_engine(target, batch), requests) for _ in range(2)][-1]
    exspec = [_steady(exspec_engine(), requests) for _ in range(2)][-1]
    return {
        "batch": batch,
        "mode": name,
        "plain": plain.tokens_per_second,
        "exspec": exspec.tokens_per_second,
        "ratio": exspec.tokens_per_second / plain.tokens_per_second,
        "same ids": exspec.answers == plain.answers == tuple(answers),
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
