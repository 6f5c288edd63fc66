"""The interface between the padded algorithms and the models: a causal LM over a left-padded batch.

The batch (padded/cache.py) belongs to the caller. The algorithm makes it empty, fills it by
`forward`, realigns, splits and stacks it. Draft and target are used through the same methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from specdec_core.algorithms.padded.cache import PaddedKV
from specdec_core.model import ForwardInput, ForwardOutput


class PaddedLM(Protocol):
    """A causal LM over left-padded batches. Not thread-safe; one caller."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def max_cached_tokens(self) -> int:
        """Maximum tokens that all batches together should hold, padding included."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def view_s(self) -> float:
        """Seconds spent so far on reading rows through their start offsets (exact numerics)."""
        ...

    def new_batch(self, content_lens: Sequence[int]) -> PaddedKV:
        """Return empty rows, padded for contents of these lengths."""
        ...

    def forward(self, kv: PaddedKV, batch: ForwardInput) -> ForwardOutput:
        """Feed rows of `kv` their tokens, in ascending order of rows; a row is a slot of `batch`.

        Raises ModelNotSupportedError for taps, because left-padded passes return no features.
        """
        ...


@dataclass(eq=False, slots=True)
class PaddedBatch:
    """One model over one left-padded batch. For a speculative round, its rows are slots."""

    model: PaddedLM
    kv: PaddedKV

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    def cached_len(self, slot: int) -> int:
        return self.kv.cached_lens[slot]

    def rollback(self, slot: int, length: int) -> None:
        self.kv.rollback(slot, length)

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        return self.model.forward(self.kv, batch)


@runtime_checkable
class Paddable(Protocol):
    """A model that can also run on a left-padded batch."""

    def padded(self) -> PaddedLM:
        """Return the same weights over left-padded batches."""
        ...
