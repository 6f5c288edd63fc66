"""The interface between a pass and the network that computes it."""

from __future__ import annotations

from typing import Protocol

from specdec_core.layers.attention.backend import Attention, Pools
from specdec_core.layers.attention.metadata import AttentionMetadata
from specdec_core.model import ForwardOutput


class Decoder(Protocol):
    """The forward of a model that has no cache."""

    def decode(
        self, metadata: AttentionMetadata, pools: Pools, attention: Attention, taps: tuple[int, ...]
    ) -> ForwardOutput:
        """Run one pass; return the logits that `metadata` wants and the input of the tapped layers.

        Every layer writes its keys and values to its own pair of `pools` and reads them there. It
        does so through `attention`, or by kernels that read the blocks of `metadata.rows`.
        """
        ...
