"""What several files here share: a GPU without one, and the search for exact shapes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from specdec_core.batch_invariance import linear as exact_linear
from specdec_core.batch_invariance.attention import find_attention_shape
from specdec_core.batch_invariance.linear import Linear, find_row_range
from specdec_core.batch_invariance.size_classes import SizeSet
from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention.metadata import AttentionShape
from specdec_core.loading import self_check as exact
from tests.models.fake_gpu import fake_gpu


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """While it lasts there is a GPU: what made the host wait for it, as it comes."""
    with fake_gpu(monkeypatch) as waits:
        yield waits


@pytest.fixture(scope="module")
def searched_once() -> Iterator[None]:
    """Equal shapes are searched for their classes once: what is found depends on nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_linear, "find_row_range", _row_range)
        patch.setattr(exact, "find_attention_shape", _attention_shape)
        yield


_linears: dict[Any, SizeSet] = {}


def _row_range(linear: Linear) -> SizeSet:
    key = (
        type(linear),
        exact_linear._shape_name(linear),
        exact_linear._dtype(linear),
        exact_linear._device(linear),
        torch.get_num_threads(),
    )
    if key not in _linears:
        _linears[key] = find_row_range(linear)
    return _linears[key]


def _attention_shape(shape: KVShape, num_heads: int, max_len: int) -> AttentionShape:
    return _found_attention(shape, num_heads, max_len, torch.get_num_threads())


@cache
def _found_attention(
    shape: KVShape, num_heads: int, max_len: int, num_threads: int
) -> AttentionShape:
    return find_attention_shape(shape, num_heads, max_len)
