"""Limits elsewhere that the default maximum K has to fit: a larger K would break each of them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from specdec_core import SpeculationConfig
from specdec_core.batch_invariance.linear import _MAX_ROWS, ExactLinear
from specdec_core.batch_invariance.size_classes import SizeSet
from specdec_core.config import (
    CPU_DRAFT_TOKENS,
    DEFAULT_MAX_CHOICES,
    GPU_DRAFT_TOKENS,
    GPU_ROWS,
    MAX_DRAFT_TOKENS,
    KPolicyName,
    default_draft_tokens,
)
from specdec_core.engine import AlgorithmName, _default_config
from specdec_core.kernels import build
from specdec_core.layers.attention.metadata import MAX_SHORT_QUERIES, SizeRange
from specdec_core.loading import profiler as timing
from specdec_core.loading.memory_plan import MAX_TOKENS
from specdec_core.worker.cuda_graphs.buckets import rounded_queries
from specdec_core.worker.cuda_graphs.recorder import MAX_RECORDINGS
from specdec_core.worker.round import MAX_FED_AT_ONCE

CPU_ROW = CPU_DRAFT_TOKENS + 1
GPU_ROW = GPU_DRAFT_TOKENS + 1
"""Tokens of a sequence in a pass: the drafted ones and the pending one."""


def constant(header: str, name: str) -> set[int]:
    """Return the values that a C header gives a constant, one for each kind of machine."""
    text = (Path(build.__file__).parent / "csrc" / header).read_text()
    return {int(value) for value in re.findall(rf"#define {name} (\d+)", text)}


@pytest.mark.parametrize("k_policy", KPolicyName)
@pytest.mark.parametrize("has_gpu", [False, True])
def test_only_goodput_may_draft_more_than_four(k_policy: KPolicyName, has_gpu: bool) -> None:
    k = default_draft_tokens(k_policy, has_gpu=has_gpu)
    if k_policy is KPolicyName.GOODPUT:
        assert k == (8 if has_gpu else 15)
    else:
        assert k == SpeculationConfig().num_draft_tokens == 4
    assert k <= MAX_DRAFT_TOKENS


def test_the_padded_algorithms_draft_four_tokens_whatever_the_policy() -> None:
    policies = {name: name.k_policy(KPolicyName.GOODPUT) for name in AlgorithmName}
    assert policies.pop(AlgorithmName.EXSPEC) is KPolicyName.GOODPUT
    assert set(policies.values()) == {KPolicyName.FIXED}


@pytest.mark.parametrize(
    ("device", "algorithm", "k"),
    [
        ("cpu", AlgorithmName.EXSPEC, 15),
        ("cuda", AlgorithmName.EXSPEC, 8),
        ("cpu", AlgorithmName.EQSPEC, 4),
    ],
)
def test_an_engine_that_is_loaded_takes_the_k_of_its_device(
    device: str, algorithm: AlgorithmName, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "rows_of_a_group", lambda target: 4)
    target: Any = SimpleNamespace(device=torch.device(device))
    config = _default_config(target, algorithm)
    assert (config.max_group_size, config.speculation.num_draft_tokens) == (4, k)


def test_a_cpu_verifies_32_sequences_in_one_pass() -> None:
    assert 32 * CPU_ROW <= MAX_TOKENS["cpu"] < 32 * (CPU_ROW + 1)


def test_a_sequence_fills_whole_tiles_of_the_kernels() -> None:
    """Eight sequences fill the rows for which the weights are read once."""
    assert constant("products.h", "TILE_ROWS") == {CPU_ROW}
    assert constant("products.h", "MAX_ROWS") == {8 * CPU_ROW}


def test_the_queries_of_a_sequence_fill_units_of_attention() -> None:
    """SmolLM2 has 3 queries for each key head and token: 48, which are 3 units of 16 with AMX and 1
    of 48 without. K = 16 would need one more of either."""
    num_queries = 3 * CPU_ROW
    for unit in constant("attention.h", "MAX_QUERIES"):
        assert num_queries % unit == 0
    assert CPU_ROW <= MAX_SHORT_QUERIES, "one rectangle, where PyTorch attends"


def test_a_gpu_has_memory_for_the_choices_of_128_sequences() -> None:
    assert DEFAULT_MAX_CHOICES == GPU_ROWS * GPU_ROW
    assert MAX_TOKENS["cuda"] >= GPU_ROWS * GPU_ROW


def test_a_gpu_records_a_shape_for_each_number_of_drafted_tokens() -> None:
    assert [rounded_queries(count) for count in range(1, GPU_ROW + 1)] == [*range(1, GPU_ROW + 1)]


def test_a_gpu_keeps_the_recordings_of_a_steady_load() -> None:
    """Three numbers of rows and three lengths, each with every K, and with the logits of all tokens
    or of one a row."""
    assert 3 * 3 * GPU_ROW * 2 <= MAX_RECORDINGS


def test_a_draft_catches_up_with_a_lookup_of_k_tokens_in_its_first_step() -> None:
    """Two tokens after a full acceptance of its own, then K + 1 of prompt lookup's round."""
    assert MAX_FED_AT_ONCE == 2 + GPU_ROW


def test_a_gpu_s_exact_linear_takes_a_full_group_in_two_even_calls() -> None:
    """The search for classes tries every size up to the limit at load, so the limit stays."""

    class Counting(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            calls.append(len(input))
            return super().forward(input)

    calls: list[int] = []
    classes = SizeSet((SizeRange(1, _MAX_ROWS["cuda"]),))
    with torch.no_grad():
        ExactLinear(Counting(4, 4), classes)(torch.zeros(GPU_ROWS * GPU_ROW, 4))
    assert calls == [576, 576]
