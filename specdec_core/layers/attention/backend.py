"""The interface between a model's layers and the attention that this machine computes.

A backend turns a pass into metadata once, and every layer then attends with the same metadata. The
pools of the cache are arguments, so a backend keeps nothing between passes. Shape legend as in
attention/metadata.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from specdec_core.layers.attention.metadata import AttentionMetadata, KVBlocks
from specdec_core.model import ForwardInput

LayerPools = tuple[Tensor, Tensor]
"""Keys and values of a layer, each [rows, K, D]: a row for each token that fits into the cache."""
Pools = Sequence[LayerPools]
"""Pools of every layer. Passes over one cache are given the same object."""


class Attention(Protocol):
    """Attention of one layer. A model's decoder calls it once per layer and pass."""

    def attend(
        self,
        metadata: AttentionMetadata,
        pools: LayerPools,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        scaling: float,
    ) -> Tensor:
        """Write the new keys and values to `pools`, then attend; return [T, H, D].

        Raises ModelNotSupportedError if their shapes are not those of the cache.
        """
        ...


class AttentionBackend(Attention, Protocol):
    """Attention that also computes its metadata. The model runner calls `plan` once per pass."""

    def plan(self, batch: ForwardInput, kv: KVBlocks) -> AttentionMetadata:
        """Return the metadata of a pass over the blocks of `kv`, which already has room for it.
        `batch` has the starts of its rows."""
        ...
