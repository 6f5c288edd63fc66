"""Flags for loading models, shared by every command that runs an engine on a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from deployments.demo.models import resolve_model
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core.config import (
    DEFAULT_GPU_MEMORY_UTILIZATION,
    KPolicyName,
    Numerics,
    default_draft_tokens,
)
from specdec_core.engine import AlgorithmName
from specdec_core.loading.loader import DType, LoadConfig, LoadedPair, device_of, load_pair


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Loading flags; cli/options.py explains each."""

    dtype: str
    device: str
    numerics: str
    revision: str | None
    draft_revision: str | None
    chat_template: Path | None
    max_model_len: int | None
    kv_cache_tokens: int | None
    enable_prefix_caching: bool = False
    """False where runs are compared, because a run would find prompts that another has computed."""
    enforce_eager: bool = False
    gpu_memory_utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION

    def load_config(self) -> LoadConfig:
        return LoadConfig(
            dtype=DType(self.dtype),
            device=self.device,
            revision=self.revision,
            max_model_len=self.max_model_len,
            kv_cache_tokens=self.kv_cache_tokens,
            numerics=Numerics(self.numerics),
            enable_prefix_caching=self.enable_prefix_caching,
            enforce_eager=self.enforce_eager,
            gpu_memory_utilization=self.gpu_memory_utilization,
        )

    def default_draft_tokens(self, algorithm: str, k_policy: KPolicyName) -> int:
        """Return the default maximum K of an algorithm on this device, for use without a flag."""
        has_gpu = device_of(self.load_config().device).type == "cuda"
        return default_draft_tokens(AlgorithmName(algorithm).k_policy(k_policy), has_gpu=has_gpu)

    def load_text(self, model: str) -> TextModel:
        return load_text_model(
            resolve_model(model),
            revision=self.revision,
            chat_template=self.chat_template,
            max_model_len=self.max_model_len,
        )

    def load_models(self, target: str, draft: str | None) -> LoadedPair:
        """Load both models. Names may be folders, hub IDs or demo models.

        The draft is loaded in fast numerics. The target decides on every proposal, so the draft
        needs no batch invariance.
        """
        load = self.load_config()
        draft_load = replace(load, revision=self.draft_revision, numerics=Numerics.FAST)
        folder = None if draft is None else resolve_model(draft)
        return load_pair(resolve_model(target), folder, load, draft_load)
