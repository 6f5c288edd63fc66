"""Our kernels between the linears: on a GPU, else by Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from specdec_core.layers import select as ops_probe
from specdec_core.layers.elementwise import Heads, LayerOps, RMSNorm, Rotation, TorchOps
from specdec_core.layers.select import Sizes, device_ops_for, is_right
from specdec_core.model import score
from specdec_core.models.llama import LlamaModel
from specdec_core.worker.model_runner import ModelRunner
from tests.models.triton_here import DEVICE, needs_triton
from tests.tiny_models import VOCAB, tiny_model

pytestmark = needs_triton
SIZES = [
    Sizes(hidden=96, ffn=200, num_query=6, num_key=2, head_dim=16, has_norms=True),
    Sizes(hidden=64, ffn=1500, num_query=4, num_key=4, head_dim=24, has_norms=False),
    Sizes(hidden=576, ffn=1536, num_query=9, num_key=3, head_dim=64, has_norms=True),
]


def triton_ops() -> LayerOps:
    from specdec_core.layers.elementwise_triton import TritonOps

    return TritonOps()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_they_answer_like_pytorch(sizes: Sizes, dtype: torch.dtype) -> None:
    assert is_right(triton_ops(), sizes, dtype, DEVICE)


def test_a_row_has_the_same_bits_alone_and_in_company() -> None:
    ops, sizes = triton_ops(), SIZES[0]
    torch.manual_seed(0)
    x_TE, update_TE = (torch.randn(7, sizes.hidden, device=DEVICE) for _ in range(2))
    gate_up = torch.randn(7, 2 * sizes.ffn, device=DEVICE)
    heads_TXD = torch.randn(7, 10, sizes.head_dim, device=DEVICE)
    turns = Rotation(*(torch.randn(7, sizes.head_dim, device=DEVICE) for _ in range(2)))
    norm, heads = ops_probe._norm(torch.randn(sizes.hidden, device=DEVICE)), Heads(6, 2, None, None)
    company = [
        ops.add_norm(x_TE.clone(), update_TE, norm),
        ops.gate(gate_up, nn.SiLU()),
        ops.rotate(heads_TXD.clone(), turns, heads),
    ]
    for row in range(7):
        own = slice(row, row + 1)
        alone = [
            ops.add_norm(x_TE[own].clone(), update_TE[own], norm),
            ops.gate(gate_up[own], nn.SiLU()),
            ops.rotate(heads_TXD[own].clone(), Rotation(turns.cosine[own], turns.sine[own]), heads),
        ]
        assert all(torch.equal(a, c[own]) for a, c in zip(alone, company, strict=True))


@pytest.mark.skipif(torch.cuda.is_available(), reason="the tiny models are on the CPU")
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_model_has_the_logits_that_it_has_with_pytorchs(family: str) -> None:
    logits = []
    for ops in (None, triton_ops()):
        decoder = LlamaModel(tiny_model(family), device_ops=ops)
        model = ModelRunner(decoder, vocab_size=VOCAB, kv_cache_tokens=256)
        slot = model.allocate()
        logits += [score(model, [(slot, range(3, 20), 17)]), score(model, [(slot, (5,), 1)])]
    torch.testing.assert_close(logits[2:], logits[:2], atol=2e-5, rtol=1e-5)


@dataclass
class Wrong(TorchOps):
    """One operation answers otherwise."""

    fault: str

    def add_norm(self, x_TE: Tensor, update_TE: Tensor | None, norm: RMSNorm) -> Tensor:
        if self.fault == "sum" and update_TE is not None:
            return norm(x_TE + update_TE)  # type: ignore[no-any-return]
        return super().add_norm(x_TE, update_TE, norm)

    def rotate(self, heads_TXD: Tensor, rotation: Rotation, heads: Heads) -> Tensor:
        if self.fault == "norms":
            heads = heads._replace(query_norm=heads.key_norm)
        if self.fault == "halves":
            rotation = Rotation(rotation.cosine, -rotation.sine)
        return super().rotate(heads_TXD, rotation, heads)

    def gate(self, gate_up: Tensor, activation: nn.Module) -> Tensor:
        if self.fault == "gate":
            gate_up = torch.cat(gate_up.chunk(2, dim=-1)[::-1], dim=-1)
        return super().gate(gate_up, activation)


@pytest.mark.parametrize("fault", ["sum", "norms", "halves", "gate"])
def test_the_probe_refuses_what_is_wrong(fault: str) -> None:
    assert is_right(Wrong(""), SIZES[0], torch.float32, DEVICE)
    assert not is_right(Wrong(fault), SIZES[0], torch.float32, DEVICE)


def model_on(device: str, activation: str = "silu") -> Any:
    return SimpleNamespace(
        device=torch.device(device),
        dtype=torch.float32,
        config=SimpleNamespace(
            hidden_act=activation,
            hidden_size=64,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        model=SimpleNamespace(layers=[SimpleNamespace(self_attn=SimpleNamespace(head_dim=16))]),
    )


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


def test_only_a_gpu_has_them_and_only_for_silu() -> None:
    assert device_ops_for(model_on("cpu")) is None
    assert device_ops_for(model_on("cuda", "gelu")) is None


def test_what_is_wrong_is_not_used_and_the_log_says_so(
    hopper: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ops_probe, "is_right", lambda *_: False)
    assert device_ops_for(model_on("cuda")) is None
    assert "their answers are wrong" in caplog.text


def test_what_does_not_compile_is_not_used_and_the_log_says_why(
    hopper: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("ptxas was killed")

    monkeypatch.setattr(ops_probe, "is_right", fail)
    assert device_ops_for(model_on("cuda")) is None
    assert "ptxas was killed" in caplog.text


def test_what_is_right_is_used(hopper: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_probe, "is_right", lambda *_: True)
    assert type(device_ops_for(model_on("cuda"))).__name__ == "TritonOps"


@pytest.mark.parametrize(("capability", "expected"), [((8, 9), False), ((9, 0), True)])
def test_kernels_start_early_from_hopper_on(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: bool
) -> None:
    from specdec_core.layers.triton_launch import may_start_early

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert may_start_early(torch.device("cuda")) == expected
    assert not may_start_early(torch.device("cpu"))
