"""Attention over a block table, through a stand-in for PyTorch's: its arguments mean these rows."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention import select as attention_probe
from specdec_core.layers.attention.paged import (
    BlockAttention,
    BlockRows,
    VarlenAttention,
)
from specdec_core.layers.attention.select import (
    find_block_attention,
    first_right,
    is_right,
)
from tests.models.cuda_graphs.by_hand import BY_HAND, varlen_by_hand
from tests.models.cuda_graphs.models import Twins, fixed, ragged

SHAPE = KVShape(
    num_layers=1, num_kv_heads=2, head_dim=16, dtype=torch.float32, device=torch.device("cpu")
)


@pytest.mark.parametrize("decoder", ["fused qwen3", "glm4"])
def test_passes_of_any_kind_have_the_logits_of_gathered_attention(decoder: str) -> None:
    over_blocks = fixed(decoder, block_attention=BY_HAND)
    twins = Twins(ragged(decoder), over_blocks, ragged(decoder, block_attention=BY_HAND))
    first, second, third = (twins.allocate() for _ in range(3))
    twins.check({first: (40, 2), second: (1, 1), third: (17, 17)})
    twins.check({first: (1, 1), second: (5, 5), third: (2, 1)})
    twins.check({second: (3, 3), third: (1, 1)})
    twins.rollback(second, 2)
    twins.check({first: (7, 7), second: (1, 1), third: (5, 5)})


def test_the_probe_takes_what_is_right() -> None:
    assert is_right(BY_HAND, SHAPE, 4, 16)
    assert is_right(BY_HAND, SHAPE, 2, 16)


def test_the_probe_refuses_what_is_wrong() -> None:
    assert not is_right(VarlenAttention(top_left), SHAPE, 4, 16)


def test_the_probe_takes_what_goes_through_the_keys_in_tiles() -> None:
    assert is_right(Tiled(), SHAPE, 4, 16)


@pytest.mark.parametrize(
    "fault",
    [
        {"rescales": False},
        {"keeps_greatest": False},
        {"most_keys": 64},
        {"most_keys": 192},
    ],
    ids=["sums of earlier tiles", "greatest of earlier tiles", "one tile", "three tiles"],
)
def test_the_probe_refuses_tiles_that_are_put_together_wrongly(fault: dict[str, Any]) -> None:
    assert not is_right(Tiled(**fault), SHAPE, 4, 16)


@dataclass(frozen=True)
class Tiled(BlockAttention):
    """Attention as kernels work it out: keys in tiles, and what was summed is scaled anew where a
    tile has a greater score than all before."""

    rescales: bool = True
    keeps_greatest: bool = True
    most_keys: int = sys.maxsize

    def __call__(
        self, query_THD: Tensor, keys: Tensor, values: Tensor, rows: BlockRows, scaling: float
    ) -> Tensor:
        counts = rows.query_ends.diff().tolist()
        queries = query_THD.split(counts)
        pools = [
            pool.repeat_interleave(query_THD.shape[1] // pool.shape[2], 2)
            for pool in (keys, values)
        ]
        return torch.cat(
            [
                self._row(query_QHD, *(pool[blocks].flatten(0, 1)[:end] for pool in pools), scaling)
                for query_QHD, blocks, end in zip(
                    queries, rows.blocks, rows.key_counts.tolist(), strict=True
                )
            ]
        )

    def _row(self, query_QHD: Tensor, key_SHD: Tensor, value_SHD: Tensor, scaling: float) -> Tensor:
        num_keys, num_queries = len(key_SHD), len(query_QHD)
        place_Q1 = torch.arange(num_keys - num_queries, num_keys).unsqueeze(1)
        score_HQS = torch.einsum("qhd,shd->hqs", query_QHD, key_SHD) * scaling
        score_HQS = score_HQS.masked_fill(torch.arange(num_keys) > place_Q1, -torch.inf)
        greatest_HQ1 = torch.full_like(score_HQS[..., :1], -torch.inf)
        mass_HQ1 = torch.zeros_like(greatest_HQ1)
        mixed_HQD = torch.zeros_like(query_QHD.transpose(0, 1))
        for first in range(0, min(num_keys, self.most_keys), 64):
            tile_HQS = score_HQS[..., first : first + 64]
            now_HQ1 = tile_HQS.amax(-1, keepdim=True).clamp(min=-1e9)
            if self.keeps_greatest:
                now_HQ1 = torch.maximum(now_HQ1, greatest_HQ1)
            kept_HQ1 = (greatest_HQ1 - now_HQ1).exp()
            if not (self.rescales and self.keeps_greatest):
                kept_HQ1 = torch.ones_like(kept_HQ1)
            weight_HQS = (tile_HQS - now_HQ1).exp()
            mass_HQ1 = mass_HQ1 * kept_HQ1 + weight_HQS.sum(-1, keepdim=True)
            tile_HSD = value_SHD[first : first + 64].transpose(0, 1)
            mixed_HQD = mixed_HQD * kept_HQ1 + weight_HQS @ tile_HSD
            greatest_HQ1 = now_HQ1
        return (mixed_HQD / mass_HQ1).transpose(0, 1)


def test_a_machine_without_any_is_warned_of_what_that_costs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert first_right({"absent": lambda: None}, SHAPE, 4, 16) is None
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "4 heads of size 16, torch.float32" in record.getMessage()
    assert "three times their bytes" in record.getMessage()


def top_left(*args: Any, **kwargs: Any) -> Tensor:
    """Causality that is aligned at the first key, as some kernels have it."""
    counts = args[3].diff()
    kwargs["seqused_k"] = torch.minimum(kwargs["seqused_k"], counts.int())
    return varlen_by_hand(*args, **kwargs)


def test_the_first_that_is_right_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    def refuses(*args: Any, **kwargs: Any) -> Tensor:
        raise RuntimeError("block_table needs another library")

    kinds = {
        "absent": lambda: None,
        "refusing": lambda: VarlenAttention(refuses),
        "wrong": lambda: VarlenAttention(top_left),
        "right": lambda: BY_HAND,
        "never asked": lambda: 1 / 0,
    }
    with caplog.at_level("INFO"):
        assert first_right(kinds, SHAPE, 4, 16) is BY_HAND  # type: ignore[arg-type]
    for reason in ("absent: it is not there", "refusing: block_table needs", "wrong: its answers"):
        assert reason in caplog.text


def test_without_triton_there_is_no_kernel_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_probe.importlib.util, "find_spec", lambda name: None)
    assert attention_probe._triton_attention(torch.device("cuda")) is None


def test_a_cpu_has_none() -> None:
    assert find_block_attention(SHAPE, 4, 16) is None


def test_a_function_without_block_tables_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch 2.11 has it; 2.13 has all that is needed."""

    def varlen_attn(
        query: Tensor, key: Tensor, value: Tensor, *, scale: float, window_size: tuple[int, int]
    ) -> Tensor:
        raise AssertionError("never called")

    module = pytest.importorskip("torch.nn.attention.varlen")
    is_new = "block_table" in inspect.signature(module.varlen_attn).parameters
    assert (attention_probe._varlen_function() is module.varlen_attn) == is_new
    monkeypatch.setattr(module, "varlen_attn", varlen_by_hand)
    assert attention_probe._varlen_function() is varlen_by_hand
    monkeypatch.setattr(module, "varlen_attn", varlen_attn)
    assert attention_probe._varlen_function() is None
