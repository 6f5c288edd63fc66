"""Loads a model that can decode from a folder or hub ID: safetensors only, never remote code."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from specdec_core.batch_invariance.linear import make_linears_exact
from specdec_core.config import (
    DEFAULT_GPU_MEMORY_UTILIZATION,
    DEFAULT_MAX_CHOICES,
    DType,
    ModelImpl,
    Numerics,
)
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError, NotExactError
from specdec_core.layers.packed_linear import pack_linears
from specdec_core.loading.draft_vocabulary import reduce_head
from specdec_core.loading.exact_cost import leave_exact_if_expensive
from specdec_core.loading.files import local_folder, model_digest, weight_files
from specdec_core.loading.fingerprint import numerics_fingerprint
from specdec_core.loading.memory_plan import ColocatedDraft, MemoryPlan, build_runner
from specdec_core.loading.profiler import cached_or_timed
from specdec_core.loading.self_check import check_rows, make_exact
from specdec_core.loading.self_check_cache import check_rows_once
from specdec_core.loading.tokenizers import check_same_tokenizer, load_tokenizer
from specdec_core.loading.weights import read_weights
from specdec_core.messages import Role
from specdec_core.models.llama import LlamaModel, fuse
from specdec_core.models.registry import check_supported, freeze_rope
from specdec_core.sampling.cpu import load_choice_kernels
from specdec_core.worker.model_runner import ModelRunner, kv_shape

__all__ = [
    "DType",
    "LoadConfig",
    "LoadedModel",
    "LoadedPair",
    "check_same_tokenizer",
    "load_model",
    "load_pair",
    "load_tokenizer",
]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """How models are loaded."""

    dtype: DType = DType.AUTO
    device: str = "auto"
    """auto (cuda when there is one), cpu, cuda, cuda:1 ..."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    max_model_len: int | None = None
    """Maximum tokens of a sequence. None: the maximum of the model's configuration."""
    kv_cache_tokens: int | None = None
    """Capacity of the KV cache in tokens. None: a share of the free memory."""
    numerics: Numerics = Numerics.AUTO
    model_impl: ModelImpl = ModelImpl.AUTO
    enforce_eager: bool = False
    """Use only PyTorch's own operations, one by one. Our own kernels and recorded GPU passes are
    off."""
    gpu_memory_utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION
    """Share of a GPU's memory that this process may take, weights included. The cache gets what is
    left. Memory of other processes does not count, so the shares of all processes must fit
    together."""
    max_choices: int = DEFAULT_MAX_CHOICES
    """Maximum tokens that one call samples. A GPU's cache leaves room for their logits and
    sampling."""
    enable_prefix_caching: bool = True
    """Share the cached blocks of equal prompt prefixes between sequences."""
    on_stage: Callable[[str], None] | None = field(default=None, compare=False)
    """Callback that receives the current stage of loading. A stage may take minutes."""

    def __post_init__(self) -> None:
        device_type = self.device.partition(":")[0]
        if device_type not in ("auto", "cpu", "cuda"):
            raise InvalidRequestError(f"device must be auto, cpu or cuda[:N], got {self.device!r}")
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise InvalidRequestError(
                f"gpu_memory_utilization must be in (0, 1], got {self.gpu_memory_utilization}"
            )
        for name in ("max_model_len", "kv_cache_tokens", "max_choices"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequestError(f"{name} must be at least 1, got {value}")

    def report_stage(self, stage: str) -> None:
        if self.on_stage is not None:
            self.on_stage(stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that is ready to decode, and facts from its files."""

    model: ModelRunner
    end_token_ids: frozenset[int]
    """Every ID that ends an answer according to the model's generation config and config."""
    digest: str
    name: str
    fingerprint: str
    """Fingerprint of the numerics. Two replicas with equal fingerprints continue each other's
    sequences bit for bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPair:
    target: LoadedModel
    draft: LoadedModel | None


def load_pair(
    target: str,
    draft: str | None,
    config: LoadConfig | None = None,
    draft_config: LoadConfig | None = None,
) -> LoadedPair:
    """Load a target and, if named, its draft, after a check that their tokenizers agree.

    Without `draft_config`, the draft uses the target's settings except for the revision and the
    numerics. It runs in fast numerics, because the target decides on every proposed token.
    """
    config = config or LoadConfig()
    draft_config = draft_config or replace(config, revision=None, numerics=Numerics.FAST)
    if draft is None:
        return LoadedPair(target=timed(load_model(target, config), Role.TARGET), draft=None)
    check_same_tokenizer(
        load_tokenizer(target, config.revision), load_tokenizer(draft, draft_config.revision)
    )
    companion = _companion(draft, draft_config, device_of(config.device))
    loaded = timed(load_model(target, config, companion), Role.TARGET)
    if companion is not None:
        tokens = loaded.model.kv_cache_spec.max_len(loaded.model.num_blocks)
        draft_config = replace(draft_config, kv_cache_tokens=draft_config.kv_cache_tokens or tokens)
    return LoadedPair(target=loaded, draft=timed(load_model(draft, draft_config), Role.DRAFT))


def timed(loaded: LoadedModel, role: Role) -> LoadedModel:
    """Time the passes of the model, store the times in it, and return `loaded`."""
    identity = f"{loaded.digest} {loaded.fingerprint}"
    loaded.model.step_times = cached_or_timed(loaded.model, role, identity)
    return loaded


def load_model(
    path_or_id: str, config: LoadConfig | None = None, companion: ColocatedDraft | None = None
) -> LoadedModel:
    """Load one model and leave room on its GPU for the draft `companion`.

    Raises ModelNotSupportedError or InvalidRequestError, naming the path.
    """
    config = config or LoadConfig()
    folder = local_folder(path_or_id, config.revision)
    model_config = _model_config(folder)
    # `check_supported` refuses a model that does not state its maximum length.
    stated_len = getattr(model_config, "max_position_embeddings", None)
    max_model_len = config.max_model_len or int(stated_len or 1)
    check_supported(model_config, max_model_len)
    weight_files(folder)
    vocab_size = len(load_tokenizer(str(folder)))
    config.report_stage("reading weights")
    weights = _weights(folder, config)
    plan = MemoryPlan(
        vocab_size=vocab_size,
        max_model_len=max_model_len,
        kv_cache_tokens=config.kv_cache_tokens,
        enable_prefix_caching=config.enable_prefix_caching,
        enforce_eager=config.enforce_eager,
        gpu_memory_utilization=config.gpu_memory_utilization,
        max_choices=config.max_choices,
        companion=companion,
    )
    config.report_stage("preparing linears")
    numerics = _numerics_of_linears(weights, config.numerics)
    config.report_stage("planning the cache")
    model = build_runner(weights, plan)
    if numerics is not Numerics.FAST:
        config.report_stage("proving exact numerics")
    digest = model_digest(folder)
    apply_numerics(model, numerics, partial(check_rows_once, digest=digest))
    return LoadedModel(
        model=model,
        end_token_ids=_end_token_ids(folder, model_config),
        digest=digest,
        name=path_or_id,
        fingerprint=numerics_fingerprint(model, digest),
    )


def _companion(
    draft: str, config: LoadConfig, target_device: torch.device
) -> ColocatedDraft | None:
    """Return what the draft takes of its target's GPU, or None if it runs on another device."""
    device = device_of(config.device)
    if device.type != "cuda" or device != target_device:
        return None
    return companion_of(local_folder(draft, config.revision), config.dtype, device)


def companion_of(folder: Path, dtype: DType, device: torch.device) -> ColocatedDraft:
    """Return what a draft takes of a GPU. Only its files are read; nothing is loaded."""
    config = _model_config(folder)
    own: Any = config.dtype if dtype is DType.AUTO else getattr(torch, dtype.value)
    return ColocatedDraft(
        weight_bytes=sum(file.stat().st_size for file in weight_files(folder)),
        spec=kv_shape(config, own or torch.float32, device).spec(),
    )


def apply_numerics(
    model: ModelRunner,
    numerics: Numerics,
    check: Callable[[ModelRunner], None] = check_rows,
) -> None:
    """Bring a fast model into the requested numerics and let `check` prove them.

    AUTO returns to fast numerics if the check fails or if exact passes cost too much. Only EXACT
    raises NotExactError.
    """
    if numerics is Numerics.FAST:
        return
    try:
        make_exact(model, check)
    except NotExactError as error:
        numerics = _go_on_fast(numerics, error)
    if numerics is Numerics.AUTO:
        leave_exact_if_expensive(model)


def _numerics_of_linears(weights: nn.Module, numerics: Numerics) -> Numerics:
    """Find the bit classes of the linears and return the numerics that are still possible.

    The search runs before the cache takes the memory that it needs. The passes that are measured
    for the cache are then exact ones.
    """
    if numerics is not Numerics.FAST:
        try:
            make_linears_exact(weights)
        except NotExactError as error:
            return _go_on_fast(numerics, error)
    return numerics


def _go_on_fast(numerics: Numerics, error: NotExactError) -> Numerics:
    if numerics is Numerics.EXACT:
        raise error
    _logger.warning("%s; using fast numerics", error)
    return Numerics.FAST


def _model_config(folder: Path) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelNotSupportedError(f"no usable config.json in {folder}: {error}") from error
    return config


def _weights(folder: Path, config: LoadConfig) -> PreTrainedModel | LlamaModel:
    weights = read_weights(folder, config.dtype, device_of(config.device))
    reduce_head(weights, folder)
    freeze_rope(weights)
    if config.model_impl is ModelImpl.TRANSFORMERS:
        pack_linears(weights)
        return weights
    return make_decoder(weights, enforce_eager=config.enforce_eager)


def make_decoder(
    weights: PreTrainedModel, *, enforce_eager: bool = False
) -> PreTrainedModel | LlamaModel:
    """Return the fastest forward of the model on this machine. `weights` must not be used
    afterwards."""
    decoder = fuse(weights, uses_kernels=not enforce_eager)
    if not enforce_eager and weights.device.type == "cpu":
        load_choice_kernels()
    if isinstance(decoder, LlamaModel):
        decoder.use_native_linears()
    pack_linears(decoder)
    return decoder


def device_of(name: str) -> torch.device:
    """Return the device with its index, because `cuda` and `cuda:0` are not equal."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidRequestError(f"device {name} was asked for, but this process sees no GPU")
    device = torch.device(name)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _end_token_ids(folder: Path, config: PreTrainedConfig) -> frozenset[int]:
    listed = [getattr(config, "eos_token_id", None)]
    if (folder / "generation_config.json").is_file():
        listed.append(GenerationConfig.from_pretrained(folder).eos_token_id)
    ids = [ids if isinstance(ids, list) else [ids] for ids in listed if ids is not None]
    return frozenset(token_id for some in ids for token_id in some)
