"""What a replica says of the model it has loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deployments.config import ServiceConfig
from deployments.model_host import host_model
from specdec_core.leases import Role
from tests.service.tiny_folder import save_tiny_llama


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_the_fingerprint_names_what_was_resolved(tmp_path: Path, dtype: str) -> None:
    """It once repeated the configuration: "auto, auto" is the same on every machine."""
    folder = save_tiny_llama(tmp_path)
    config = ServiceConfig(model=str(folder), dtype=dtype, device="cpu", kv_cache_tokens=2048)
    num_threads = torch.get_num_threads()
    info = host_model(config, Role.TARGET, num_threads).describe("target-1", 5)
    resolved = "float32" if dtype == "auto" else "bfloat16"
    assert info.fingerprint == f"torch {torch.__version__}, cpu, {resolved}, fast numerics"
