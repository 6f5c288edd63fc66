"""The recorded draft over left-padded batches (see recorded_draft).

A padded batch moves its rows about and knows no sequences. So the number of a row's sequence is
written over the first cached key of the row, and travels with it: the keys of this draft decide
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.paper.answer_book import AnswerBook, one_hot_like
from specdec_core.algorithms.padded.cache import PaddedKV
from specdec_core.algorithms.padded.interface import PaddedLM
from specdec_core.host_copies import on_device
from specdec_core.model import ForwardInput, ForwardOutput

_BASE = 128
"""Digits below it are exact in bfloat16."""


class RecordedPadded:
    """A PaddedLM that runs `model` for its cost and proposes from the book."""

    def __init__(self, model: PaddedLM, book: AnswerBook) -> None:
        self._model = model
        self._book = book

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

    @property
    def max_model_len(self) -> int:
        return self._model.max_model_len

    @property
    def max_cached_tokens(self) -> int:
        return self._model.max_cached_tokens

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def view_s(self) -> float:
        return self._model.view_s

    def new_batch(self, content_lens: Sequence[int]) -> PaddedKV:
        return self._model.new_batch(content_lens)

    @torch.inference_mode()
    def forward(self, kv: PaddedKV, batch: ForwardInput) -> ForwardOutput:
        began = [(row, ids) for row, ids, _ in batch.rows() if ids and kv.cached_lens[row] == 0]
        computed = self._model.forward(kv, batch).logits
        for row, ids in began:
            write_number(kv, row, self._book.number_of(ids))
        numbers = read_numbers(kv)
        proposed = [
            token
            for row, count in zip(batch.slots, batch.num_logits, strict=True)
            for token in self._book.next_tokens(numbers[row], kv.cached_lens[row], count)
        ]
        return ForwardOutput(one_hot_like(computed, proposed))


def write_number(kv: PaddedKV, row: int, number: int) -> None:
    digits = divmod(number + 1, _BASE)
    assert digits[0] < _BASE, f"at most {_BASE**2 - 1} sequences, got number {number}"
    first_key_HD = kv.pools(0)[0][row * kv.num_columns + kv.starts[row]]
    first_key_HD.view(-1)[:2] = on_device(digits, kv.shape.dtype, kv.shape.device)


def read_numbers(kv: PaddedKV) -> list[int]:
    """Of every row, in order."""
    places = [row * kv.num_columns + start for row, start in enumerate(kv.starts)]
    index = on_device(places, torch.long, kv.shape.device)
    digits: list[list[float]] = kv.pools(0)[0][index].flatten(1)[:, :2].tolist()
    return [int(high) * _BASE + int(low) - 1 for high, low in digits]
