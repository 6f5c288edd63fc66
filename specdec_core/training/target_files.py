"""A target's configuration and single weights, read from its folder without loading the model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig

from specdec_core.errors import ModelNotSupportedError
from specdec_core.loading.files import local_folder, weight_files

EMBEDDINGS = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"

_TEXT_FILES = (
    "tokenizer*.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)


@dataclass(frozen=True, slots=True)
class TargetFiles:
    """A target's folder, configuration and weight files. Weights have the Llama family's names."""

    folder: Path
    config: PreTrainedConfig
    files: dict[str, Path]
    """File of each weight, by the weight's name."""

    def weight(self, name: str) -> Tensor:
        """Return one weight in float32. Raises ModelNotSupportedError if the target has no such
        weight."""
        if name not in self.files:
            raise ModelNotSupportedError(
                f"{self.folder} has no weight {name}: a draft needs a "
                f"{self.config.model_type} target with the usual weight names"
            )
        with safe_open(self.files[name], framework="pt") as file:
            weight: Tensor = file.get_tensor(name)
        return weight.to(torch.float32)

    def names_under(self, prefix: str) -> set[str]:
        return {name.removeprefix(prefix) for name in self.files if name.startswith(prefix)}

    def copy_text_files(self, folder: Path) -> None:
        """Copy tokenizer, chat template and end IDs, because a draft has those of its target."""
        for pattern in _TEXT_FILES:
            for file in self.folder.glob(pattern):
                shutil.copyfile(file, folder / file.name)


def open_target(path_or_id: str, revision: str | None = None) -> TargetFiles:
    """Open a target. Raises ModelNotSupportedError for a folder without configuration or
    weights."""
    folder = local_folder(path_or_id, revision)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelNotSupportedError(f"no usable config.json in {folder}: {error}") from error
    files = {}
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as file:
            files.update(dict.fromkeys(file.keys(), path))
    return TargetFiles(folder, config, files)
