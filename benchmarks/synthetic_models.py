"""The models of a synthetic pair: ones with weights, or random weights in a given shape."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.paper.shapes import Shape, pair_shape, random_model
from benchmarks.prompts import chat_prompts
from benchmarks.synthetic import DrafterKind
from deployments.demo.models import resolve_model
from specdec_core.config import Numerics
from specdec_core.loading.loader import (
    DType,
    LoadConfig,
    apply_numerics,
    device_of,
    load_model,
    make_decoder,
)
from specdec_core.worker.model_runner import ModelRunner

RANDOM = "random-"
DEMO = "smollm2-135m"
DEMO_DRAFT = "smollm2-135m-draft"
_ROUNDING = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What is loaded, and for how much at once."""

    target: str
    """A demo name, a folder, a hub id, or `random-NAME` of benchmarks/paper/shapes.py."""
    draft: str
    """The same for the draft whose passes are run; a random target's has its pair's shape."""
    dtype: DType
    numerics: Numerics
    device: str
    scale: int
    """Divides random shapes."""
    max_len: int
    """Prompt, answer and a proposal."""
    max_sequences: int
    seed: int = 0
    """Seed of random weights."""
    enable_prefix_caching: bool = True

    @property
    def is_random(self) -> bool:
        return self.target.startswith(RANDOM)

    @property
    def row_len(self) -> int:
        return -(-self.max_len // _ROUNDING) * _ROUNDING

    @property
    def kv_cache_tokens(self) -> int:
        return (self.max_sequences + 1) * self.row_len


def load_target(options: ModelOptions) -> ModelRunner:
    """Raises ModelNotSupportedError, and NotExactError where exact numerics are asked in vain."""
    if not options.is_random:
        return load_named(options.target, options, options.numerics)
    pair = pair_shape(options.target)
    target = _random(pair.target, pair.vocab_size, options)
    apply_numerics(target, options.numerics)
    return target


def load_draft(options: ModelOptions, kind: DrafterKind) -> ModelRunner | None:
    """The model whose passes a drafted token costs; None where it costs none."""
    if kind is DrafterKind.LOOKUP:
        return None
    if not options.is_random:
        return load_named(options.draft, options, Numerics.FAST)
    return random_draft(options)


def random_draft(options: ModelOptions) -> ModelRunner:
    """Return random weights in the shape of the draft of a random target."""
    pair = pair_shape(options.target)
    return _random(pair.draft, pair.vocab_size, options)


def prompts_for(
    options: ModelOptions,
    vocab_size: int,
    path: Path | None,
    count: int,
    prompt_len: int,
    category: str | None = None,
) -> list[tuple[int, ...]]:
    """Of the file through the chat template, cut to their last `prompt_len` ids; without a file, or
    for random weights, random ids."""
    if path is not None and not options.is_random:
        prompts = chat_prompts(str(resolve_model(options.target)), path, count, category)
        return [prompt[-prompt_len:] for prompt in prompts]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocab_size, (count, prompt_len), generator=generator)
    return [tuple(row) for row in ids.tolist()]


def load_named(name: str, options: ModelOptions, numerics: Numerics) -> ModelRunner:
    """Load a demo model, a folder or a hub ID for the sizes of `options`."""
    config = LoadConfig(
        dtype=options.dtype,
        device=options.device,
        numerics=numerics,
        max_model_len=options.row_len,
        kv_cache_tokens=options.kv_cache_tokens,
        enable_prefix_caching=options.enable_prefix_caching,
    )
    return load_model(str(resolve_model(name)), config).model


def _random(shape: Shape, vocab_size: int, options: ModelOptions) -> ModelRunner:
    weights = random_model(
        shape.scaled(options.scale),
        vocab_size,
        seed=options.seed,
        dtype=getattr(torch, options.dtype.value),
        device=device_of(options.device),
        max_len=options.row_len,
    )
    return ModelRunner(
        make_decoder(weights),
        vocab_size=vocab_size,
        kv_cache_tokens=options.kv_cache_tokens,
        max_model_len=options.row_len,
        enable_prefix_caching=options.enable_prefix_caching,
    )
