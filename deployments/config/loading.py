"""Declares how models are loaded: the same flags and settings for all commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from deployments.config.flags import argument, flag, made_of
from deployments.demo.models import resolve_model
from specdec_core.config import (
    DEFAULT_GPU_MEMORY_UTILIZATION,
    DType,
    KPolicyName,
    Numerics,
    default_draft_tokens,
)

if TYPE_CHECKING:
    from deployments.text.tokenizer import TextModel
    from specdec_core.loading.loader import LoadConfig, LoadedPair


DEMO_MODEL = "smollm2-135m"
_MODEL_HELP = "Folder, hub id or name of a pulled demo model."


def model_argument(default: str = DEMO_MODEL) -> Any:
    """Return a field with the model that a command takes."""
    return argument(default, _MODEL_HELP, "MODEL")


def target_flag(default: Any) -> Any:
    """Return a field with the model that a draft is for."""
    return flag(default, _MODEL_HELP)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Loading of the target and of the draft model.

    A flag with the name of a field of LoadConfig reaches every command and the replicas.
    """

    PANEL: ClassVar[str] = "Model"

    dtype: DType = flag(
        DType.AUTO,
        "Number type of weights and KV cache. `auto` is the type of the checkpoint.",
        choices=DType,
    )
    device: str = flag(
        "auto", "Device: `cpu`, `cuda`, `cuda:N`, or `auto` (cuda if there is a GPU)."
    )
    numerics: Numerics = flag(
        Numerics.AUTO,
        "`exact` gives the tokens of plain decoding in any batch, and fails if this machine or "
        "model cannot. `auto` is exact if it can be, and on a GPU if passes take at most 10 % "
        "longer. `fast` may choose another token if two nearly tie.",
        choices=Numerics,
    )
    revision: str | None = flag(None, "Branch, tag or commit of the target on the hub.")
    draft_revision: str | None = flag(None, "Branch, tag or commit of the draft on the hub.")
    chat_template: Path | None = flag(
        None,
        "File with a Jinja chat template that replaces the model's own.",
        exists=True,
        dir_okay=False,
    )
    max_model_len: int | None = flag(
        None, "Maximum tokens of a sequence, prompt included. Default: the model's.", min=2
    )
    kv_cache_tokens: int | None = flag(
        None, "Capacity of one KV cache, in tokens. Default: by free memory.", min=64
    )
    enable_prefix_caching: bool = flag(
        True,
        "Share the cached blocks of equal prompt prefixes between sequences.",
        "--enable-prefix-caching/--no-enable-prefix-caching",
    )
    enforce_eager: bool = flag(
        False,
        "Run PyTorch's operations one by one, without compiled kernels or recorded passes.",
        "--enforce-eager/--no-enforce-eager",
    )
    gpu_memory_utilization: float | None = flag(
        DEFAULT_GPU_MEMORY_UTILIZATION,
        "Share of a GPU's memory for weights and cache, at most 1.",
        bounds={"gt": 0, "le": 1},
    )
    """None: the default, which the replicas on one GPU divide by what each needs."""

    def load_config(self) -> LoadConfig:
        """Return the target's configuration. Raises InvalidRequestError for a wrong device.

        It takes every field of LoadConfig that has a flag here. None is the default.
        """
        from specdec_core.loading.loader import LoadConfig

        return made_of(LoadConfig, self)

    def draft_config(self) -> LoadConfig:
        """Return the draft model's configuration. It is loaded in fast numerics: the target decides
        on every proposal, so the draft needs no batch invariance."""
        draft = replace(self, revision=self.draft_revision, numerics=Numerics.FAST)
        return draft.load_config()

    def default_draft_tokens(self, algorithm: str, k_policy: KPolicyName) -> int:
        """Return the default maximum K of an algorithm on this device, for use without a flag."""
        from specdec_core.engine import AlgorithmName
        from specdec_core.loading.loader import device_of

        has_gpu = device_of(self.device).type == "cuda"
        return default_draft_tokens(AlgorithmName(algorithm).k_policy(k_policy), has_gpu=has_gpu)

    def load_text(self, model: str) -> TextModel:
        from deployments.text.tokenizer import load_text_model

        return load_text_model(
            resolve_model(model),
            revision=self.revision,
            chat_template=self.chat_template,
            max_model_len=self.max_model_len,
        )

    def load_models(self, target: str, draft: str | None) -> LoadedPair:
        """Load both models. Names may be folders, hub IDs or demo models."""
        from specdec_core.loading.loader import load_pair

        folder = None if draft is None else resolve_model(draft)
        return load_pair(resolve_model(target), folder, self.load_config(), self.draft_config())
