"""What a pass must read and compute, counted by hand; the machine's rates only for being there."""

from __future__ import annotations

import pytest
import torch

from deployments.cli.bench.roofline import Roofline, measure_roofline
from specdec_core.config import ModelImpl
from specdec_core.loading.loader import make_decoder
from specdec_core.loading.self_check import make_exact
from specdec_core.worker.model_runner import ModelRunner
from tests.tiny_models import VOCAB, tiny_model

WIDE = {"hidden_size": 192, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}
HIDDEN, QUERY, KV, MLP, LAYERS = 192, 6 * 64, 2 * 64, 96, 2
BY_HAND = LAYERS * HIDDEN * (2 * QUERY + 2 * KV + 3 * MLP) + HIDDEN * VOCAB


@pytest.mark.covering(1)
@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("enforce_eager", [False, True])
@pytest.mark.parametrize("impl", ModelImpl)
def test_every_weight_of_a_linear_counts_once_whatever_the_forward(
    impl: ModelImpl, enforce_eager: bool, is_exact: bool
) -> None:
    weights = tiny_model("llama", **WIDE).bfloat16()
    if impl is ModelImpl.AUTO:
        decoder = make_decoder(weights, enforce_eager=enforce_eager)
    else:
        decoder = weights
    model = ModelRunner(decoder, vocab_size=VOCAB, kv_cache_tokens=1024)
    if is_exact:
        make_exact(model)
    roofline = measure_roofline(model)
    assert roofline.weight_bytes == 2 * BY_HAND
    assert roofline.flops_per_row == 2 * BY_HAND
    assert roofline.bytes_per_second > 0
    assert roofline.flops_per_second > 0


def test_the_line_says_what_bounds_a_pass() -> None:
    roofline = Roofline(
        weight_bytes=200_000_000,
        flops_per_row=200_000_000,
        bytes_per_second=20e9,
        flops_per_second=1e12,
    )
    assert roofline.read_s == pytest.approx(0.01)
    assert roofline.free_rows == 50
    assert "200 MB of weights, at 20.0 GB/s 10.0 ms" in str(roofline)
    assert "up to 50 rows" in str(roofline)
    assert "at most 100 tokens/s" in str(roofline)


def test_a_model_on_a_cpu_is_measured_in_its_own_type() -> None:
    model = ModelRunner(tiny_model("llama"), vocab_size=VOCAB, kv_cache_tokens=1024)
    assert model.dtype == torch.float32
    assert measure_roofline(model).weight_bytes % 4 == 0
