"""Exact numerics on a GPU: the search at load mixes no devices, and rounds wait no more often."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_core.batch_invariance import attention as exact_attention
from specdec_core.batch_invariance import linear as exact_linear
from specdec_core.batch_invariance.linear import ExactLinear, find_row_range
from specdec_core.batch_invariance.size_classes import SizeSet
from specdec_core.config import Numerics
from specdec_core.layers.attention.metadata import ANY_ATTENTION, SizeRange
from specdec_core.loading import self_check as exact
from specdec_core.loading.self_check import make_exact
from specdec_core.model import score
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.worker.cuda_graphs.recorder import DirectRecorder
from specdec_core.worker.round import propose, round_row, score_and_verify
from tests.models.exact_table import ATTENTION, keep_to_classes
from tests.models.fake_gpu import GPU, on_gpu, over_blocks
from tests.tiny_models import VOCAB

K = 4
RULES = SamplingRules(SamplingParams(temperature=0.0), prompt_len=3)
WAYS = pytest.mark.parametrize(
    ("decoder", "attention", "recorder"),
    [
        ("glm4", None, None),
        ("fused qwen3", over_blocks, None),
        ("glm4", over_blocks, DirectRecorder()),
        ("fused qwen3", None, DirectRecorder()),
    ],
)


@pytest.mark.thorough
@pytest.mark.parametrize("attention", [None, over_blocks])
def test_the_search_at_load_runs_where_the_model_is(
    waits: list[str], monkeypatch: pytest.MonkeyPatch, attention: Any
) -> None:
    """Every answer of this GPU is equal: the widest classes that are tried."""
    monkeypatch.setattr(exact_linear, "_MAX_ROWS", {"cuda": 4})
    monkeypatch.setattr(exact_linear, "_MIN_ROWS_COMPARED", 4)
    for size, number in {"_MAX_QUERIES": 3, "_KEY_STEP": 64, "_KEY_PERIOD": 128}.items():
        monkeypatch.setattr(exact_attention, size, number)
    monkeypatch.setattr(exact, "_CHECKED_LENGTHS", (3, 20))
    model = on_gpu(waits, recorder=DirectRecorder(), block_attention=attention, max_model_len=128)
    table = make_exact(model)
    assert {rows for _, rows in table.linears} == {SizeSet((SizeRange(1, 4),))}
    assert table.attention == ANY_ATTENTION or table.attention.queries == SizeRange(1, 3)
    assert (table.attention == ANY_ATTENTION) == (attention is not None)
    assert model.numerics is Numerics.EXACT
    assert any(isinstance(module, ExactLinear) for module in model.module.modules())


@WAYS
def test_an_exact_pass_never_waits(
    waits: list[str], decoder: str, attention: Any, recorder: DirectRecorder | None
) -> None:
    model = on_gpu(waits, decoder, recorder=recorder, block_attention=attention)
    keep_to_classes(model, ANY_ATTENTION if attention else ATTENTION)
    slots = [model.allocate() for _ in range(4)]
    score(model, [(s, range(2, 2 + n), 0) for s, n in zip(slots, (40, 3, 17, 60), strict=True)])
    logits = score(model, [(slot, (5, 6, 7), 3) for slot in slots])
    assert (logits.shape, logits.device) == ((12, VOCAB), GPU)
    assert waits == []


@pytest.mark.thorough
@WAYS
def test_an_exact_round_waits_once_to_draft_and_once_to_verify(
    waits: list[str], decoder: str, attention: Any, recorder: DirectRecorder | None
) -> None:
    """Without recordings a draft is asked token by token."""
    model = on_gpu(waits, decoder, recorder=recorder, block_attention=attention)
    keep_to_classes(model, ANY_ATTENTION if attention else ATTENTION)
    slots = [model.allocate() for _ in range(2)]
    score(model, [(slot, (2, 3, 4), 0) for slot in slots])
    propose(model, [round_row(slot, (5,), (), K, RULES) for slot in slots])
    assert waits == ["tolist"] * (1 if recorder else K)
    waits.clear()
    turns = [round_row(slot, (0,), (0,) * K, K + 1, RULES) for slot in slots]
    score_and_verify(model, turns)
    assert waits == ["tolist"]


def test_a_gpu_reads_large_weights_once_for_all_proposals_of_128_sequences(
    waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of every size have the same answers here: they need not be made."""
    monkeypatch.setattr(exact_linear, "_LARGE_WEIGHT", 8)
    answer = torch.zeros(32, 6, device=GPU)
    monkeypatch.setattr(exact_linear, "_result_in_calls_of", lambda *_: answer)
    found = find_row_range(nn.Linear(4, 6, bias=False, device=GPU))
    assert found == SizeSet((SizeRange(1, 128 * (K + 1)),))


class HostNumbers(TorchDispatchMode):
    """The most numbers that an operation leaves on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor) and output.device.type == "cpu":
            self.most = max(self.most, output.numel())
        return output


def test_the_probe_of_a_head_is_not_made_on_the_host(waits: list[str]) -> None:
    head = nn.Linear(64, 50_000, bias=True, device=GPU, dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    with HostNumbers() as host:
        probe = exact_linear._cancelling_linear(head, generator)
    assert isinstance(probe, nn.Linear)
    assert probe.weight.shape == head.weight.shape
    assert (probe.weight.device, probe.weight.dtype) == (GPU, torch.bfloat16)
    assert host.most <= 64 * 1024
