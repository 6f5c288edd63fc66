"""From a folder or hub id to a model that can decode: safetensors only, never remote code."""

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
from specdec_core.loading.exact_cost import leave_exact_where_dear
from specdec_core.loading.files import local_folder, model_digest, weight_files
from specdec_core.loading.fingerprint import numerics_fingerprint
from specdec_core.loading.memory_plan import ColocatedDraft, MemoryPlan, place
from specdec_core.loading.profiler import known_or_timed
from specdec_core.loading.self_check import check_rows, make_exact
from specdec_core.loading.self_check_cache import check_rows_once
from specdec_core.loading.tokenizers import check_same_tokenizer, load_tokenizer
from specdec_core.loading.weights import read_weights
from specdec_core.messages import Role
from specdec_core.models.llama import LlamaModel, fuse
from specdec_core.models.registry import check_supported, freeze_rope
from specdec_core.sampling.cpu import use_choice_kernels
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
    """Of hub ids: a branch, tag or commit."""
    max_model_len: int | None = None
    """Most tokens of a sequence; None takes what the model was made for."""
    kv_cache_tokens: int | None = None
    """Tokens that the KV cache can hold; None takes a share of the free memory."""
    numerics: Numerics = Numerics.AUTO
    model_impl: ModelImpl = ModelImpl.AUTO
    enforce_eager: bool = False
    """PyTorch's own operations only, one by one, where there are kernels of ours as well, or passes
    that a GPU repeats as a whole."""
    gpu_memory_utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION
    """Share of a GPU's memory that this process may take, weights and all; the cache gets what is
    left. What other processes take does not count, so the shares of all have to fit."""
    max_choices: int = DEFAULT_MAX_CHOICES
    """Most tokens that one call chooses, whose logits and choice a GPU's cache leaves room for."""
    enable_prefix_caching: bool = True
    """Prompts that begin alike share what is cached of them."""
    on_stage: Callable[[str], None] | None = field(default=None, compare=False)
    """Told what loading is at: each stage may take minutes."""

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

    def tell(self, stage: str) -> None:
        if self.on_stage is not None:
            self.on_stage(stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to decode and what its files say of it."""

    model: ModelRunner
    end_token_ids: frozenset[int]
    """Every id that ends an answer by the model's generation config and config."""
    digest: str
    name: str
    fingerprint: str
    """Equal on two replicas that continue each other's sequences bit for bit."""


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
    """Load a target and, if named, its draft, once their tokenizers are known to agree.

    The draft is loaded like the target unless `draft_config` says otherwise, but for the revision
    and for exact numerics: whatever a draft proposes, the target decides.
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
        tokens = loaded.model.num_blocks * loaded.model.block_size
        draft_config = replace(draft_config, kv_cache_tokens=draft_config.kv_cache_tokens or tokens)
    return LoadedPair(target=loaded, draft=timed(load_model(draft, draft_config), Role.DRAFT))


def timed(loaded: LoadedModel, role: Role) -> LoadedModel:
    """Return the same. Its model knows the times of its passes."""
    identity = f"{loaded.digest} {loaded.fingerprint}"
    loaded.model.step_times = known_or_timed(loaded.model, role, identity)
    return loaded


def load_model(
    path_or_id: str, config: LoadConfig | None = None, companion: ColocatedDraft | None = None
) -> LoadedModel:
    """Load one model and leave room on its GPU for a `companion`.

    Raises ModelNotSupportedError or InvalidRequestError, naming the path.
    """
    config = config or LoadConfig()
    folder = local_folder(path_or_id, config.revision)
    model_config = _model_config(folder)
    max_model_len = config.max_model_len or _max_positions(model_config)
    check_supported(model_config, max_model_len)
    weight_files(folder)
    vocab_size = len(load_tokenizer(str(folder)))
    config.tell("reading weights")
    weights = _weights(folder, config)
    placing = MemoryPlan(
        vocab_size=vocab_size,
        max_model_len=max_model_len,
        kv_cache_tokens=config.kv_cache_tokens,
        enable_prefix_caching=config.enable_prefix_caching,
        enforce_eager=config.enforce_eager,
        gpu_memory_utilization=config.gpu_memory_utilization,
        max_choices=config.max_choices,
        companion=companion,
    )
    config.tell("preparing linears")
    numerics = _numerics_of_linears(weights, config.numerics)
    config.tell("planning the cache")
    model = place(weights, placing)
    if numerics is not Numerics.FAST:
        config.tell("proving exact numerics")
    digest = model_digest(folder)
    settle_numerics(model, numerics, partial(check_rows_once, digest=digest))
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
    """What a draft will take of the GPU of its target; None where it takes nothing of that."""
    device = device_of(config.device)
    if device.type != "cuda" or device != target_device:
        return None
    return companion_of(local_folder(draft, config.revision), config.dtype, device)


def companion_of(folder: Path, dtype: DType, device: torch.device) -> ColocatedDraft:
    """By its files: nothing is loaded."""
    config = _model_config(folder)
    own: Any = config.dtype if dtype is DType.AUTO else getattr(torch, dtype.value)
    return ColocatedDraft(
        weight_bytes=sum(file.stat().st_size for file in weight_files(folder)),
        kv=kv_shape(config, own or torch.float32, device),
    )


def settle_numerics(
    model: ModelRunner,
    numerics: Numerics,
    check: Callable[[ModelRunner], None] = check_rows,
) -> None:
    """Bring a fast model into what was asked for, which `check` proves, and AUTO out of it again
    where it is dear. Raises NotExactError only for EXACT."""
    if numerics is Numerics.FAST:
        return
    try:
        make_exact(model, check)
    except NotExactError as error:
        numerics = _go_on_fast(numerics, error)
    if numerics is Numerics.AUTO:
        leave_exact_where_dear(model)


def _numerics_of_linears(weights: nn.Module, numerics: Numerics) -> Numerics:
    """Search for the classes of linears before a cache takes the memory that this needs, so that
    the passes which are measured for the cache are exact ones; returns what is still possible."""
    if numerics is not Numerics.FAST:
        try:
            make_linears_exact(weights)
        except NotExactError as error:
            return _go_on_fast(numerics, error)
    return numerics


def _go_on_fast(numerics: Numerics, error: NotExactError) -> Numerics:
    if numerics is Numerics.EXACT:
        raise error
    _logger.warning("%s; going on with fast numerics", error)
    return Numerics.FAST


def _model_config(folder: Path) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelNotSupportedError(f"no usable config.json in {folder}: {error}") from error
    return config


def _max_positions(config: PreTrainedConfig) -> int:
    """What the model was made for; `check_supported` refuses a model that does not say."""
    return int(getattr(config, "max_position_embeddings", None) or 1)


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
    """The fastest forward that this machine has for the model, which gives its weights away."""
    decoder = fuse(weights, uses_kernels=not enforce_eager)
    if not enforce_eager and weights.device.type == "cpu":
        use_choice_kernels()
    if isinstance(decoder, LlamaModel):
        decoder.use_native_linears()
    pack_linears(decoder)
    return decoder


def device_of(name: str) -> torch.device:
    """With its number: `cuda` and `cuda:0` are not equal."""
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
