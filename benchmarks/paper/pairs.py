"""A pair that is ready to decode: target and draft over their caches, and the workload."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.paper.algorithms import PLAIN, scheduler_config
from benchmarks.paper.answer_book import AnswerBook
from benchmarks.paper.decoding import Decoded, decode
from benchmarks.paper.pair_spec import DraftKind, PairSpec
from benchmarks.paper.recorded_draft import RecordedDraft
from benchmarks.paper.workload import Workload
from benchmarks.synthetic_models import ModelOptions, load_named, load_target, random_draft
from deployments.cli.verify.draft import self_draft
from deployments.demo.models import resolve_model
from specdec_core import SchedulerConfig, SpecMethod
from specdec_core.config import Numerics
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.loader import DType, check_same_tokenizer, load_tokenizer
from specdec_core.model import CachedModel
from specdec_core.worker.model_runner import ModelRunner

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
    models = ModelOptions(
        target=spec.target,
        draft=spec.draft_model,
        dtype=options.dtype,
        numerics=options.numerics,
        device=options.device,
        scale=options.scale,
        max_len=workload.longest + options.num_draft_tokens + 1,
        max_sequences=options.max_sequences,
        seed=options.seed,
        enable_prefix_caching=False,  # other algorithms have none to compare with
    )
    target = load_target(models)
    pair = Pair(
        target=target, draft=None, workload=workload, num_draft_tokens=options.num_draft_tokens
    )
    if spec.kind is DraftKind.NGRAM:
        return pair
    if spec.kind is DraftKind.RECORDED:
        return replace(pair, draft=_recorded_draft(spec, pair, models))
    if spec.kind is DraftKind.SELF:
        return replace(pair, draft=self_draft(target, spec.num_left_out))
    tokenizers = (load_tokenizer(resolve_model(name)) for name in (spec.target, spec.draft_model))
    check_same_tokenizer(*tokenizers)
    return replace(pair, draft=load_named(spec.draft_model, models, Numerics.FAST))


def _recorded_draft(spec: PairSpec, pair: Pair, models: ModelOptions) -> RecordedDraft:
    """Its answers are those of plain decoding, so they are decoded first."""
    answers = pair.reference().answers
    book = AnswerBook(
        pair.workload.prompts,
        answers,
        probability=spec.probability,
        vocab_size=pair.target.vocab_size,
        seed=models.seed,
    )
    if spec.is_random:
        return RecordedDraft(random_draft(models), book)
    num_layers = int(pair.target.module.config.num_hidden_layers)
    return RecordedDraft(self_draft(pair.target, round(_RECORDED_LEFT_OUT * num_layers)), book)
