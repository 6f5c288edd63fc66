"""Packing changes the speed of a linear, never a bit of its result."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specdec_core.layers.packed_linear import PackedLinear, pack_linears


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 64, 32), (5, 64, 97), (300, 96, 64)])
def test_a_packed_linear_has_the_bits_of_the_linear(
    rows: int, inputs: int, outputs: int, bias: bool
) -> None:
    torch.manual_seed(rows)
    model = nn.Sequential(nn.Linear(inputs, outputs, bias=bias)).bfloat16()
    x = torch.randn(1, rows, inputs).bfloat16()
    with torch.no_grad():
        expected = model(x)
        if pack_linears(model) == 0:
            pytest.skip("this torch packs no bfloat16 weights, or not bit-equally")
        assert isinstance(model[0], PackedLinear)
        assert torch.equal(model(x), expected)
        assert model(x[:, :0]).shape == (1, 0, outputs)


def test_float32_linears_are_packed_up_to_rounding() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32))
    x = torch.randn(3, 64)
    with torch.no_grad():
        expected = model(x)
        if pack_linears(model) == 0:
            pytest.skip("this torch packs no weights")
        torch.testing.assert_close(model(x), expected)


def test_float16_linears_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4)).half()
    assert pack_linears(model) == 0
    assert type(model[0]) is nn.Linear


def test_bfloat16_linears_are_left_alone_where_the_processor_cannot_pack_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)

    def refuse(*_: object) -> torch.Tensor:
        raise RuntimeError("bf16 path needs the cpu support avx_ne_convert or avx512")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", refuse)
    model = nn.Sequential(nn.Linear(64, 32)).bfloat16()
    assert pack_linears(model) == 0
    assert type(model[0]) is nn.Linear
