"""The interface between a pass and the network that computes it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from specdec_core.layers.attention.metadata import AttentionMetadata
from specdec_core.layers.attention.sdpa import AttentionPass


class Decoder(Protocol):
    """The forward of a model that has no cache."""

    def decode(self, plan: AttentionMetadata, attention_pass: AttentionPass) -> Tensor:
        """Return the logits that `plan` wants, [N, V]; every layer attends through
        `attention_pass`."""
        ...
