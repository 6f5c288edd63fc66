"""A draft of a chosen quality: real passes, proposals from recorded answers, seeded mistakes.

It lets a pair of real shapes be measured without trained draft weights: the passes cost what the
draft's shape costs, the target verifies in earnest, and only what is proposed is arranged.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.paper.answer_book import UNKNOWN, AnswerBook, one_hot_like
from benchmarks.paper.recorded_padded import RecordedPadded
from specdec_core.algorithms.padded.model import padded
from specdec_core.model import CachedModel, DraftChoice, DraftsInOneGo, ForwardInput, ForwardOutput


class RecordedDraft:
    """A CachedModel that runs `model` for its cost and proposes from the book. Greedy only."""

    prefix_cache = None

    def __init__(self, model: CachedModel, book: AnswerBook) -> None:
        self._model = model
        self._book = book
        self._numbers: dict[int, int] = {}
        """Slot -> its sequence, known once it was fed."""
        self.vocab_size = model.vocab_size
        self.max_model_len = model.max_model_len
        self.num_blocks = model.num_blocks
        self.kv_cache_spec = model.kv_cache_spec
        self.tile_rows = model.tile_rows
        self.step_times = model.step_times

    @property
    def recording_s(self) -> float:
        return self._model.recording_s

    @property
    def num_free_blocks(self) -> int:
        return self._model.num_free_blocks

    def allocate(self) -> int:
        return self._model.allocate()

    def free(self, slot: int) -> None:
        self._model.free(slot)
        self._numbers.pop(slot, None)

    def wait(self) -> None:
        self._model.wait()

    def cached_len(self, slot: int) -> int:
        return self._model.cached_len(slot)

    def rollback(self, slot: int, length: int) -> None:
        self._model.rollback(slot, length)

    def padded(self) -> RecordedPadded:
        return RecordedPadded(padded(self._model), self._book)

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        self._meet(batch)
        computed = self._model.forward(batch).logits
        rows = zip(batch.slots, batch.num_logits, strict=True)
        proposed = [token for row in rows for token in self._following(*row)]
        return ForwardOutput(one_hot_like(computed, proposed))

    @property
    def drafts_in_one_go(self) -> bool:
        return isinstance(self._model, DraftsInOneGo) and self._model.drafts_in_one_go

    def draft(
        self, batch: ForwardInput, choices: Sequence[DraftChoice], min_confidence: float
    ) -> list[tuple[int, ...]] | None:
        """The passes are those of the model, whatever it would propose."""
        assert isinstance(self._model, DraftsInOneGo)
        self._meet(batch)
        if self._model.draft(batch, choices, 0.0) is None:
            return None
        rows = zip(batch.slots, choices, strict=True)
        return [tuple(self._following(slot, count)) for slot, (count, _) in rows]

    def _meet(self, batch: ForwardInput) -> None:
        for slot, ids, _ in batch.rows():
            if self.cached_len(slot) == 0:
                self._numbers[slot] = self._book.number_of(ids)

    def _following(self, slot: int, count: int) -> list[int]:
        """Return what the book has after the tokens that the slot caches, all drafted tokens but
        the last included."""
        number = self._numbers.get(slot, UNKNOWN)
        return self._book.next_tokens(number, self.cached_len(slot), count)
