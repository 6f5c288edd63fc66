"""A target or draft without weights, for questions of scheduling: which rows would share a pass.

What it emits is in an AnswerBook, so that nothing but the algorithm's own bookkeeping takes time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from benchmarks.paper.answer_book import AnswerBook
from benchmarks.paper.recorded_draft import RecordedDraft
from specdec_core.algorithms.padded.cache import PaddedKV
from specdec_core.kv_cache.paged import KVShape
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.model import ForwardInput, ForwardOutput
from specdec_core.step_times import StepTime

VOCAB_SIZE = 512
_BLOCK_SIZE = 16
_NUM_BLOCKS = 100_000
_CPU = torch.device("cpu")
_SHAPE = KVShape(num_layers=1, num_kv_heads=1, head_dim=4, dtype=torch.float32, device=_CPU)


class NoPasses:
    """A CachedModel and a PaddedLM that compute nothing: lengths are all they keep."""

    kv_cache_spec = FullAttentionSpec(_BLOCK_SIZE)
    num_blocks = _NUM_BLOCKS
    max_model_len = _NUM_BLOCKS * _BLOCK_SIZE
    max_cached_tokens = max_model_len
    num_free_blocks = _NUM_BLOCKS
    tile_rows = 0
    recording_s = 0.0
    step_times: tuple[StepTime, ...] = ()
    prefix_cache = None

    def __init__(self, vocab_size: int = VOCAB_SIZE) -> None:
        self.vocab_size = vocab_size
        self._lens: dict[int, int] = {}
        self._num_allocated = 0

    def allocate(self) -> int:
        self._num_allocated += 1
        self._lens[self._num_allocated] = 0
        return self._num_allocated

    def free(self, slot: int) -> None:
        del self._lens[slot]

    def wait(self) -> None:
        """Passes are done when they return."""

    def cached_len(self, slot: int) -> int:
        return self._lens[slot]

    def rollback(self, slot: int, length: int) -> None:
        self._lens[slot] = min(self._lens[slot], length)

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        for slot, count in zip(batch.slots, batch.token_counts, strict=True):
            self._lens[slot] += count
        return _blank(batch, self.vocab_size)

    def padded(self) -> _NoPaddedPasses:
        return _NoPaddedPasses()


class _NoPaddedPasses:
    vocab_size = VOCAB_SIZE
    max_model_len = _NUM_BLOCKS * _BLOCK_SIZE
    max_cached_tokens = max_model_len
    device = _CPU
    view_s = 0.0

    def new_batch(self, content_lens: Sequence[int]) -> PaddedKV:
        return PaddedKV(_SHAPE, content_lens)

    def forward(self, kv: PaddedKV, batch: ForwardInput) -> ForwardOutput:
        kv.extend(dict(zip(batch.slots, batch.token_counts, strict=True)))
        return _blank(batch, VOCAB_SIZE)


def _blank(batch: ForwardInput, vocab_size: int) -> ForwardOutput:
    return ForwardOutput(torch.zeros(sum(batch.num_logits), vocab_size))


def token_model(book: AnswerBook) -> RecordedDraft:
    """A model that emits what the book says: a target if the book is always right."""
    return RecordedDraft(NoPasses(), book)


def random_sequences(lens: Sequence[int], seed: int) -> list[tuple[int, ...]]:
    """Random ids of these lengths."""
    rng = random.Random(f"sequences/{seed}")
    return [tuple(rng.randrange(VOCAB_SIZE) for _ in range(length)) for length in lens]
