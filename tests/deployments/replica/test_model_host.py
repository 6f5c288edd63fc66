"""What a replica says of the model it has loaded, and in which numerics it loads it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deployments.cli.serve_flags import service_config
from deployments.config.service import ServiceConfig
from deployments.replica.model_host import accelerator_name, host_model
from specdec_core.config import Numerics
from specdec_core.errors import NotExactError
from specdec_core.messages import ReplicaInfo, Role
from tests.service.tiny_folder import save_tiny_llama


def describe(folder: Path, role: Role = Role.TARGET, **settings: Any) -> ReplicaInfo:
    config = ServiceConfig.of(
        model=str(folder), spec_model=str(folder), device="cpu", kv_cache_tokens=2048, **settings
    )
    return host_model(config, role, torch.get_num_threads()).describe("replica-1", 5)


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_the_fingerprint_names_what_was_resolved(tmp_path: Path, dtype: str) -> None:
    """It once repeated the configuration: "auto, auto" is the same on every machine."""
    info = describe(save_tiny_llama(tmp_path), dtype=dtype, numerics="fast")
    resolved = "float32" if dtype == "auto" else "bfloat16"
    assert info.fingerprint.startswith(f"cpu {resolved} fast torch {torch.__version__} ")
    assert info.numerics is Numerics.FAST


def test_a_target_is_exact_when_asked_and_a_draft_is_always_fast(tmp_path: Path) -> None:
    folder = save_tiny_llama(tmp_path)
    target = describe(folder, numerics="exact")
    draft = describe(folder, Role.DRAFT, numerics="exact")
    assert (target.numerics, draft.numerics) == (Numerics.EXACT, Numerics.FAST)
    assert " exact " in target.fingerprint
    assert describe(folder, numerics="exact").fingerprint == target.fingerprint


def test_a_gpu_has_one_name_whoever_asks_and_cpus_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, replicas run side by side."""
    assert describe(save_tiny_llama(tmp_path), numerics="fast").device == ""
    gpus = [SimpleNamespace(uuid="one"), SimpleNamespace(uuid="other")]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpus[device.index])
    names = [accelerator_name(torch.device("cuda", number)) for number in (0, 1, 0)]
    assert names == ["one", "other", "one"]


@pytest.mark.parametrize("role", Role)
def test_the_prefix_cache_is_on_unless_it_is_switched_off(tmp_path: Path, role: Role) -> None:
    folder = str(save_tiny_llama(tmp_path))
    settings = {"model": folder, "spec_model": folder, "device": "cpu", "kv_cache_tokens": 2048}
    for is_off in (False, True):
        flags = {"enable_prefix_caching": False} if is_off else {}
        config = service_config(None, {**settings, "numerics": "fast", **flags})
        hosted = host_model(config, role, torch.get_num_threads())
        assert (hosted.loaded.model.prefix_cache is None) is is_off


def test_auto_goes_on_in_fast_numerics_and_says_which_operation_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(model: object, check: object) -> None:
        raise NotExactError("operation that differs: layer 3 q_proj")

    folder = save_tiny_llama(tmp_path)
    monkeypatch.setattr("specdec_core.loading.loader.make_exact", refuse)
    with caplog.at_level(logging.WARNING):
        assert describe(folder, numerics="auto").numerics is Numerics.FAST
    assert "layer 3 q_proj" in caplog.text
    with pytest.raises(NotExactError, match="layer 3 q_proj"):
        describe(folder, numerics="exact")
