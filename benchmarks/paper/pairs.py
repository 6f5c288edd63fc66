"""A pair that is ready to decode: target and draft over their caches, and the workload."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from benchmarks.paper.algorithms import PLAIN, scheduler_config
from benchmarks.paper.answer_book import AnswerBook
from benchmarks.paper.decoding import Decoded, decode
from benchmarks.paper.pair_spec import DraftKind, PairSpec
from benchmarks.paper.recorded_draft import RecordedDraft
from benchmarks.paper.shapes import Shape, pair_shape, random_model
from benchmarks.paper.workload import Workload
from deployments.cli.verify.draft import self_draft
from deployments.demo.models import resolve_model
from specdec_core import SchedulerConfig, SpecMethod
from specdec_core.config import Numerics
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.loader import (
    DType,
    LoadConfig,
    check_same_tokenizer,
    load_model,
    load_tokenizer,
    make_decoder,
    settle_numerics,
)
from specdec_core.model import CachedModel
from specdec_core.worker.model_runner import ModelRunner

_ROUNDING = 64
_RECORDED_LEFT_OUT = 2 / 3
"""Share of a real target's layers that its recorded draft lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How the models of a pair are held."""

    device: str
    dtype: DType
    numerics: Numerics
    max_sequences: int
    """Sequences that the caches must hold at once: the largest window."""
    num_draft_tokens: int
    scale: int = 8
    """By which the shapes of `random-*` targets are divided."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    target: ModelRunner
    draft: CachedModel | None
    workload: Workload
    num_draft_tokens: int

    @property
    def method(self) -> SpecMethod:
        return SpecMethod.NGRAM if self.draft is None else SpecMethod.DRAFT_MODEL

    def engine(
        self,
        algorithm: AlgorithmName,
        batch_size: int,
        window: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Engine:
        """A fresh engine: its stats begin at 0."""
        is_plain = algorithm is PLAIN
        method = SpecMethod.NONE if is_plain else self.method
        return Engine(
            self.target,
            None if is_plain else self.draft,
            config=scheduler_config(method, self.num_draft_tokens, batch_size, window),
            algorithm=algorithm,
            clock=clock,
        )

    def decode(
        self, algorithm: AlgorithmName, batch_size: int, window: int | None = None
    ) -> Decoded:
        return decode(self.engine(algorithm, batch_size, window), self.workload.requests())

    def reference(self) -> Decoded:
        """Plain decoding, one sequence at a time."""
        config = SchedulerConfig(max_group_size=1, window=1, max_queued=100_000)
        return decode(Engine(self.target, config=config, algorithm=PLAIN), self.workload.requests())


def load_pair(spec: PairSpec, workload: Workload, options: PairOptions) -> Pair:
    """Load or make the models. Raises ModelNotSupportedError or NotExactError."""
    target = _target(spec, workload, options)
    pair = Pair(
        target=target, draft=None, workload=workload, num_draft_tokens=options.num_draft_tokens
    )
    if spec.kind is DraftKind.NGRAM:
        return pair
    if spec.kind is DraftKind.RECORDED:
        return replace(pair, draft=_recorded_draft(spec, pair, options))
    if spec.kind is DraftKind.SELF:
        return replace(pair, draft=self_draft(target, spec.num_left_out))
    return replace(pair, draft=_named_draft(spec, workload, options))


def _max_len(workload: Workload, num_draft_tokens: int) -> int:
    longest = workload.longest + num_draft_tokens + 1
    return -(-longest // _ROUNDING) * _ROUNDING


def _load_config(workload: Workload, options: PairOptions, numerics: Numerics) -> LoadConfig:
    max_len = _max_len(workload, options.num_draft_tokens)
    return LoadConfig(
        dtype=options.dtype,
        device=options.device,
        numerics=numerics,
        max_model_len=max_len,
        kv_cache_tokens=(options.max_sequences + 1) * max_len,
        enable_prefix_caching=False,  # other algorithms have none to compare with
    )


def _target(spec: PairSpec, workload: Workload, options: PairOptions) -> ModelRunner:
    if spec.is_random:
        shape = pair_shape(spec.target)
        target = _random(shape.target, shape.vocab_size, workload, options)
        settle_numerics(target, options.numerics)
        return target
    config = _load_config(workload, options, options.numerics)
    return load_model(resolve_model(spec.target), config).model


def _named_draft(spec: PairSpec, workload: Workload, options: PairOptions) -> ModelRunner:
    path = resolve_model(spec.draft_model)
    check_same_tokenizer(load_tokenizer(resolve_model(spec.target)), load_tokenizer(path))
    return load_model(path, _load_config(workload, options, Numerics.FAST)).model


def _recorded_draft(spec: PairSpec, pair: Pair, options: PairOptions) -> RecordedDraft:
    """Its answers are those of plain decoding, so they are decoded first."""
    answers = pair.reference().answers
    book = AnswerBook(
        pair.workload.prompts,
        answers,
        probability=spec.probability,
        vocab_size=pair.target.vocab_size,
        seed=options.seed,
    )
    return RecordedDraft(_cost_model(spec, pair, options), book)


def _cost_model(spec: PairSpec, pair: Pair, options: PairOptions) -> ModelRunner:
    """Whose passes the recorded draft makes."""
    if spec.is_random:
        shape = pair_shape(spec.target)
        return _random(shape.draft, shape.vocab_size, pair.workload, options)
    num_layers = int(pair.target.module.config.num_hidden_layers)
    return self_draft(pair.target, round(_RECORDED_LEFT_OUT * num_layers))


def _random(shape: Shape, vocab_size: int, workload: Workload, options: PairOptions) -> ModelRunner:
    max_len = _max_len(workload, options.num_draft_tokens)
    weights = random_model(
        shape.scaled(options.scale),
        vocab_size,
        seed=options.seed,
        dtype=getattr(torch, options.dtype.value),
        device=_device(options.device),
        max_len=max_len,
    )
    return ModelRunner(
        make_decoder(weights),
        vocab_size=vocab_size,
        kv_cache_tokens=(options.max_sequences + 1) * max_len,
        max_model_len=max_len,
        enable_prefix_caching=False,
    )


def _device(name: str) -> torch.device:
    is_cuda = name.startswith("cuda") or (name == "auto" and torch.cuda.is_available())
    return torch.device(("cuda" if name == "auto" else name) if is_cuda else "cpu")
