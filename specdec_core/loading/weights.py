"""Reads a folder's weights, each tensor directly to its device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.integrations import accelerate

from specdec_core.config import DType
from specdec_core.errors import ModelNotSupportedError


def read_weights(folder: Path, dtype: DType, device: torch.device) -> PreTrainedModel:
    """Return the network as transformers makes it. Raises ModelNotSupportedError, naming the
    folder."""
    try:
        with _on_one_device():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype.value,
                device_map={"": device},
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelNotSupportedError(
            f"the weights in {folder} cannot be loaded: {error}"
        ) from error
    model, info = loaded
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ModelNotSupportedError(
            f"{folder} lacks {len(missing)} weights that the model needs, {missing[0]} among them"
        )
    weights: PreTrainedModel = model
    return weights


@contextmanager
def _on_one_device() -> Iterator[None]:
    """Let transformers load to one device without accelerate. It requires accelerate for any device
    map, but uses it only to spread a model over several devices."""
    if find_spec("accelerate") is not None:
        yield
        return
    with patch.object(accelerate, "is_accelerate_available", return_value=True):
        yield
