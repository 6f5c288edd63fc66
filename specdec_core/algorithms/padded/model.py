"""A transformers model over left-padded batches; implements PaddedLM.

The forward is flat, as over the in-place cache, with the live tokens of all rows on one axis. Only
attention sees the rectangle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from specdec_core.algorithms.padded.attention import RectangleAttention
from specdec_core.algorithms.padded.cache import PaddedKV
from specdec_core.algorithms.padded.interface import Paddable, PaddedLM
from specdec_core.config import Numerics
from specdec_core.errors import ModelNotSupportedError
from specdec_core.layers.attention.metadata import split_into_passes
from specdec_core.model import CachedModel, ForwardInput, ForwardOutput
from specdec_core.stopwatch import Stopwatch
from specdec_core.worker.model_runner import ModelRunner


class PaddedTransformersModel:
    """Uses the weights and the numerics of `model`, and none of its cache."""

    def __init__(self, model: ModelRunner) -> None:
        self.vocab_size: int = model.vocab_size
        self.max_model_len = model.max_model_len
        self.max_cached_tokens = model.kv_cache_spec.max_len(model.num_blocks)
        self.device = model.device
        self._model = model
        self._view_watch = Stopwatch(model.device)

    @property
    def view_s(self) -> float:
        return self._view_watch.seconds

    def new_batch(self, content_lens: Sequence[int]) -> PaddedKV:
        return PaddedKV(self._model.cache_shape, content_lens)

    @torch.inference_mode()
    def forward(self, kv: PaddedKV, batch: ForwardInput) -> ForwardOutput:
        """See PaddedLM. More than `max_tokens_per_pass` tokens take several passes."""
        if batch.taps:
            raise ModelNotSupportedError("passes over a left-padded batch return no features")
        rows = list(batch.slots)
        assert rows == sorted(set(rows)), "a row is fed once, in order"
        columns = batch.num_logits, batch.token_counts
        assert all(0 <= wanted <= count for wanted, count in zip(*columns, strict=True))
        is_exact = self._model.numerics is Numerics.EXACT
        batch = batch._replace(starts=[kv.cached_lens[row] for row in batch.slots])
        passes = self._exact_passes(kv, batch) if is_exact else self._fast_passes(kv, batch)
        logits = [some.logits for some in passes if some.logits.shape[0]]
        if not logits:
            return ForwardOutput(
                torch.empty(0, self._model.module.config.vocab_size, device=self.device)
            )
        return ForwardOutput(logits[0] if len(logits) == 1 else torch.cat(logits))

    def _exact_passes(self, kv: PaddedKV, batch: ForwardInput) -> Iterator[ForwardOutput]:
        """Run the passes of the in-place cache, over the batch read row by row."""
        model, attention = self._model, self._model.attention_backend(self._view_watch)
        kv.extend(dict(zip(batch.slots, batch.token_counts, strict=True)))
        max_queries = model.attention_shape.queries.high
        for one_pass in split_into_passes(batch, model.max_tokens_per_pass, max_queries):
            yield model.decoder.decode(attention.plan(one_pass, kv), kv.all_pools, attention, ())

    def _fast_passes(self, kv: PaddedKV, batch: ForwardInput) -> Iterator[ForwardOutput]:
        """Run windows of columns from the left. All wanted logits are in the last window."""
        model = self._model
        attention = RectangleAttention(model.num_query_groups, model.attention_shape)
        for window in _windows(batch, model.max_tokens_per_pass // max(len(batch.slots), 1)):
            kv.extend(dict(zip(window.slots, window.token_counts, strict=True)))
            yield model.decoder.decode(attention.plan(window, kv), kv.all_pools, attention, ())


def _windows(batch: ForwardInput, num_columns: int) -> Iterator[ForwardInput]:
    """Cut rows that end together into windows of at most `num_columns` columns. A proposal is
    never cut."""
    longest = max(batch.token_counts, default=0)
    step = max(num_columns, 1, *batch.num_logits)
    for end in range(longest % step or step, longest + step, step):
        rows, starts = [], []
        for (row, tokens, num_logits), start in zip(batch.rows(), batch.starts, strict=True):
            num_padding = longest - len(tokens)
            first, last = max(end - step - num_padding, 0), max(end - num_padding, 0)
            rows.append((row, tokens[first:last], num_logits if end >= longest else 0))
            starts.append(start + first)
        yield ForwardInput.of(rows, starts=starts)


def padded(model: CachedModel) -> PaddedLM:
    """Return a model with the same weights over left-padded batches.

    Raises ModelNotSupportedError for a model that has no such batches.
    """
    if isinstance(model, Paddable):
        return model.padded()
    if isinstance(model, ModelRunner):
        return PaddedTransformersModel(model)
    raise ModelNotSupportedError(f"{type(model).__name__} cannot run on a left-padded cache")
