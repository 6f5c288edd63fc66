"""What two replicas must share: the attention over blocks, the compiler that made it, and a GPU's
libraries."""

from __future__ import annotations

import pytest
import torch

from specdec_core.layers.attention.paged import BlockAttention, VarlenAttention
from specdec_core.layers.elementwise import TorchOps
from specdec_core.loading import fingerprint
from specdec_core.loading.fingerprint import numerics_fingerprint
from specdec_core.models.llama import LlamaModel
from specdec_core.worker.model_runner import ModelRunner
from tests.models.cuda_graphs.by_hand import varlen_by_hand
from tests.models.fake_gpu import on_gpu
from tests.tiny_models import VOCAB, tiny_decoder, tiny_model


class _Compiled(VarlenAttention):
    def __init__(self, version: str) -> None:
        super().__init__(varlen_by_hand)
        self.compiler_version = version


class _CompiledOps(TorchOps):
    def __init__(self, version: str) -> None:
        self.compiler_version = version


def test_every_attention_has_its_fingerprint() -> None:
    kinds: list[BlockAttention | None] = [
        None,
        VarlenAttention(varlen_by_hand),
        _Compiled("3.6"),
        _Compiled("3.9"),
    ]
    model = ModelRunner(tiny_model("llama"), vocab_size=VOCAB, kv_cache_tokens=256)
    found = []
    for model.block_attention in kinds:
        found.append(numerics_fingerprint(model, "digest"))
    assert len(set(found)) == len(kinds)
    model.block_attention = _Compiled("3.9")
    assert numerics_fingerprint(model, "digest") == found[-1]


def test_what_lies_between_the_linears_has_its_fingerprint() -> None:
    """By its compiler, too."""
    model = ModelRunner(tiny_decoder("fused llama"), vocab_size=VOCAB, kv_cache_tokens=256)
    assert isinstance(model.module, LlamaModel)
    found = [numerics_fingerprint(model, "digest")]
    for version in ("3.6", "3.9"):
        model.module.ops = _CompiledOps(version)
        found.append(numerics_fingerprint(model, "digest"))
    assert len(set(found)) == 3


def test_the_libraries_of_a_gpu_count(waits: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's version does not say which patch of cuBLAS is installed, nor FlashAttention's."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    model = on_gpu(waits)
    versions: dict[str, str] = {}
    monkeypatch.setattr(fingerprint, "_cublas_version", lambda: versions.get("cuBLAS", "130001"))
    monkeypatch.setattr(fingerprint, "_package_version", lambda name: versions.get(name, "none"))
    found = [numerics_fingerprint(model, "digest")]
    assert numerics_fingerprint(model, "digest") == found[0]
    for name in ("cuBLAS", "flash-attn", "flash-attn-3"):
        versions[name] = "2.8.3"
        found.append(numerics_fingerprint(model, "digest"))
    assert len(set(found)) == len(found)


def test_the_version_of_cublas_is_asked_of_the_library_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = fingerprint._cublas_version()
    assert version.isdigit() == (torch.version.cuda is not None), version
    monkeypatch.setattr(torch.version, "cuda", None)
    assert fingerprint._cublas_version() == "unknown"


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert fingerprint._package_version("torch").startswith(torch.__version__.partition("+")[0])
    assert fingerprint._package_version("no-such-package") == "unknown"
