"""Where a model is placed and what it leaves for its draft, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers.integrations import accelerate

from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.paged import KVShape
from specdec_core.kv_cache.spec import KVCacheSpec
from specdec_core.loading import loader as loading
from specdec_core.loading import memory_plan as placing
from specdec_core.loading import weights
from specdec_core.loading.loader import DType, LoadConfig, companion_of, load_pair
from specdec_core.loading.memory import DeviceMemory, KVNeeds
from specdec_core.loading.memory_plan import ColocatedDraft, MemoryPlan, build_runner, share_of
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow
from specdec_core.worker.cuda_graphs.buckets import MAX_ROWS
from tests.models.fake_gpu import GPU
from tests.models.folders import save_model
from tests.tiny_models import VOCAB, tiny_decoder, tiny_model

LAYERS, HEADS, HEAD_DIM = 2, 2, 16


@pytest.mark.parametrize(("dtype", "size"), [(DType.AUTO, 4), (DType.BFLOAT16, 2)])
def test_a_draft_is_counted_by_its_files(tmp_path: Path, dtype: DType, size: int) -> None:
    folder = Path(save_model(tmp_path / "draft"))
    companion = companion_of(folder, dtype, torch.device("cuda"))
    assert companion.weight_bytes == (folder / "model.safetensors").stat().st_size
    assert companion.spec.bytes_per_block == 16 * 2 * LAYERS * HEADS * HEAD_DIM * size


def test_on_a_cpu_a_pair_is_loaded_as_its_configuration_says(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    config = LoadConfig(device="cpu", kv_cache_tokens=1024, numerics=Numerics.FAST)
    pair = load_pair(folder, folder, config, replace(config, kv_cache_tokens=512))
    assert pair.draft is not None
    assert (pair.target.model.num_blocks, pair.draft.model.num_blocks) == (64, 32)


def test_processes_on_one_gpu_each_get_their_weights_and_as_many_blocks() -> None:
    shape = KVShape(
        num_layers=1,
        num_kv_heads=2,
        head_dim=4,
        dtype=torch.bfloat16,
        device=torch.device("cuda"),
    )
    target = ColocatedDraft(weight_bytes=600, spec=shape.spec())
    draft = ColocatedDraft(weight_bytes=100, spec=replace(shape, num_kv_heads=1).spec())
    crowd = [target, draft, draft]
    shares = [share_of(one, crowd, 2000, 0.9) for one in crowd]
    assert sum(shares) == pytest.approx(0.9)
    nums_blocks = {
        round((share * 2000 - one.weight_bytes) / one.spec.bytes_per_block, 6)
        for share, one in zip(shares, crowd, strict=True)
    }
    assert nums_blocks == {round(1000 / 64 / 16, 6)}


def test_weights_go_to_their_device_without_a_copy_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With accelerate and without; on a device that keeps no numbers."""
    folder = Path(save_model(tmp_path / "model"))
    monkeypatch.setattr(torch.nn.Module, "to", lambda *_: pytest.fail("moved afterwards"))
    for spec in (find_spec("torch"), None):
        monkeypatch.setattr(weights, "find_spec", lambda name, spec=spec: spec)
        monkeypatch.setattr(accelerate, "is_accelerate_available", lambda spec=spec: bool(spec))
        network = weights.read_weights(folder, DType.BFLOAT16, torch.device("meta"))
        assert all(parameter.is_meta for parameter in network.parameters())
        assert accelerate.is_accelerate_available() is bool(spec)


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_on_a_cpu_nothing_is_recorded(enforce_eager: bool) -> None:
    asked = MemoryPlan(vocab_size=VOCAB, max_model_len=100, enforce_eager=enforce_eager)
    model = build_runner(tiny_model("llama"), asked)
    assert not model.drafts_in_one_go
    assert model.block_attention is None
    assert model.max_tokens_per_pass == 512
    assert model.kv_cache_spec.max_len(model.num_blocks) > 100, "a share of the memory that is free"


def test_a_cpu_s_cache_is_planned_beside_the_logits_of_its_largest_verification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 sequences of K = 15 and 152,000 IDs take 0.6 GB."""
    planned: list[int] = []

    def planning(spec: KVCacheSpec, logit_bytes: int) -> int:
        planned.append(logit_bytes)
        return 1024

    monkeypatch.setattr(placing, "default_kv_blocks", planning)
    build_runner(
        tiny_model("llama"), MemoryPlan(vocab_size=VOCAB, max_model_len=100, max_choices=1024)
    )
    assert planned == [1024 * VOCAB * 4]


def test_on_a_gpu_cudnn_makes_no_plans_for_attention(waits: list[str]) -> None:
    placing = MemoryPlan(
        vocab_size=VOCAB, max_model_len=100, kv_cache_tokens=1024, enforce_eager=True
    )
    was_enabled = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        build_runner(tiny_decoder("fused qwen3").to(GPU), placing)
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)


def test_a_cache_that_holds_no_whole_sequence_is_refused() -> None:
    asked = MemoryPlan(vocab_size=VOCAB, max_model_len=100, kv_cache_tokens=99)
    with pytest.raises(InvalidRequestError, match=r"99 tokens .* max_model_len=100"):
        build_runner(tiny_model("llama"), asked)


@pytest.mark.parametrize("name", ["cuda", "auto", "cuda:0"])
def test_a_draft_on_its_targets_gpu_is_counted_however_the_gpu_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    draft = save_model(tmp_path / "draft")
    target_device = loading.device_of(name)
    for draft_name in ("cuda", "auto", "cuda:0"):
        config = LoadConfig(device=draft_name)
        assert loading._companion(draft, config, target_device) is not None
    assert loading._companion(draft, LoadConfig(device="cuda:1"), target_device) is None


@pytest.mark.parametrize("max_choices", [40, 500])
def test_what_the_largest_verification_takes_is_measured(
    waits: list[str], monkeypatch: pytest.MonkeyPatch, max_choices: int
) -> None:
    """Its logits, and the choice by each kind of rule, beside the pass; a row of the probe is no
    longer than a sequence may be."""
    chosen: list[tuple[int, int]] = []
    planned: list[KVNeeds] = []
    peaks = iter((2000, 5000))

    def choosing(logits: torch.Tensor, rows: list[SampleRow], vocab_size: int) -> list[int]:
        chosen.append((len(logits), len(rows)))
        return choose(logits, rows, vocab_size)

    def measuring(work: Callable[[], object], device: torch.device) -> int:
        work()
        return next(peaks)

    def planning(memory: DeviceMemory, needs: KVNeeds, utilization: float) -> int:
        planned.append(needs)
        return 1024

    monkeypatch.setattr(placing, "choose", choosing)
    monkeypatch.setattr(placing, "peak_bytes", measuring)
    monkeypatch.setattr(placing, "plan_kv_blocks", planning)
    monkeypatch.setattr(DeviceMemory, "now", lambda device: DeviceMemory(free=0, total=0))
    build_runner(
        tiny_model("llama").to(GPU),
        MemoryPlan(
            vocab_size=VOCAB, max_model_len=100, enforce_eager=True, max_choices=max_choices
        ),
    )
    assert chosen == [(max_choices, max_choices)] * 2
    assert (planned[0].workspace_bytes, planned[0].choice_bytes) == (2000, 3000)
    assert planned[0].logit_bytes == max(max_choices, MAX_ROWS) * VOCAB * 4
