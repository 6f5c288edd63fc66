"""What a pass must read, and that the networks are of Qwen3's kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu_report.networks import num_parameters, random_network, weight_bytes
from benchmarks.gpu_report.settings import (
    QWEN3_06B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    REHEARSED,
    NetworkShape,
    Settings,
)
from specdec_core.models.llama import LlamaModel

SETTINGS = Settings(device="cpu", output=Path(), is_rehearsal=True, sizes=REHEARSED)
FLOAT_BYTES = 4


def all_bytes(shape: NetworkShape) -> int:
    return num_parameters(shape) * FLOAT_BYTES


@pytest.mark.parametrize(
    ("shape", "billions"), [(QWEN3_8B, 8.19), (QWEN3_06B, 0.596), (QWEN3_30B_A3B, 30.53)]
)
def test_true_shapes_have_the_parameters_of_their_models(
    shape: NetworkShape, billions: float
) -> None:
    assert num_parameters(shape) / 1e9 == pytest.approx(billions, rel=0.002)


def test_a_dense_network_is_ours_with_norms_of_queries_and_keys() -> None:
    network = random_network(REHEARSED.target, SETTINGS)
    assert isinstance(network, LlamaModel)
    assert network.layers[0].query_norm is not None


def test_of_an_embedding_that_is_not_the_head_rows_alone_are_read() -> None:
    tied, untied = (replace(REHEARSED.target, is_tied=is_tied) for is_tied in (True, False))
    embedding = tied.vocab * tied.hidden * FLOAT_BYTES
    assert weight_bytes(random_network(tied, SETTINGS), 1) == all_bytes(tied)
    assert weight_bytes(random_network(untied, SETTINGS), 1) == all_bytes(untied) - embedding


def test_few_tokens_read_few_experts() -> None:
    """Of four, two for each token."""
    shape = REHEARSED.mixture
    network = random_network(shape, SETTINGS)
    experts = shape.layers * shape.experts * 3 * shape.hidden * shape.ffn * FLOAT_BYTES
    others = all_bytes(shape) - experts - shape.vocab * shape.hidden * FLOAT_BYTES
    assert weight_bytes(network, 1) == pytest.approx(others + experts / 2)
    assert weight_bytes(network, 2) == pytest.approx(others + experts * 3 / 4)
