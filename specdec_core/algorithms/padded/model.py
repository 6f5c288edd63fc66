"""A transformers model over left-padded batches; implements PaddedLM.

The forward is flat, as over the in-place cache, with the live tokens of all rows on one axis. Only
attention sees the rectangle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specdec_core.algorithms.padded.attention import (
    OffsetPass,
    RectanglePass,
    RowOffsets,
    plan_rectangle,
)
from specdec_core.algorithms.padded.cache import PaddedKV
from specdec_core.algorithms.padded.interface import Paddable, PaddedLM
from specdec_core.config import Numerics
from specdec_core.errors import ModelNotSupportedError
from specdec_core.layers.attention.metadata import split_into_passes
from specdec_core.model import CachedModel, Feed
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
    def score(self, kv: PaddedKV, feeds: Sequence[Feed]) -> Tensor:
        """See PaddedLM. Feeds beyond `max_tokens_per_pass` take several passes."""
        rows = [feed.slot for feed in feeds]
        assert rows == sorted(set(rows)), "a row is fed once, in order"
        assert all(0 <= feed.num_logits <= len(feed.tokens) for feed in feeds)
        is_exact = self._model.numerics is Numerics.EXACT
        passes = self._exact_passes(kv, feeds) if is_exact else self._fast_passes(kv, feeds)
        logits = [some for some in passes if some.shape[0]]
        if not logits:
            return torch.empty(0, self._model.module.config.vocab_size, device=self.device)
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _exact_passes(self, kv: PaddedKV, feeds: Sequence[Feed]) -> Iterator[Tensor]:
        """Run the passes of the in-place cache, over the batch read row by row."""
        model = self._model
        starts = [kv.cached_lens[feed.slot] for feed in feeds]
        kv.extend({feed.slot: len(feed.tokens) for feed in feeds})
        for pieces in split_into_passes(
            feeds, starts, model.max_tokens_per_pass, model.attention.queries.high
        ):
            if pieces and model.block_attention is not None:
                yield model.run_over_blocks(pieces, RowOffsets(kv))
            elif pieces:
                plan = model.plan(pieces, RowOffsets(kv))
                yield model.run_pass(plan, OffsetPass(plan, kv, self._view_watch, model.kernels))

    def _fast_passes(self, kv: PaddedKV, feeds: Sequence[Feed]) -> Iterator[Tensor]:
        """Run windows of columns from the left. All wanted logits are in the last window."""
        model = self._model
        for window in _windows(feeds, model.max_tokens_per_pass // max(len(feeds), 1)):
            kv.extend({feed.slot: len(feed.tokens) for feed in window})
            plan = plan_rectangle(kv, window)
            rectangle = RectanglePass(plan, kv, window, model.num_query_groups)
            yield model.run_pass(plan, rectangle)


def _windows(feeds: Sequence[Feed], num_columns: int) -> Iterator[list[Feed]]:
    """Cut feeds that end together into windows of at most `num_columns` columns. A proposal is
    never cut."""
    longest = max((len(feed.tokens) for feed in feeds), default=0)
    step = max(num_columns, 1, *(feed.num_logits for feed in feeds))
    for end in range(longest % step or step, longest + step, step):
        yield [_window(feed, end - step - longest, end - longest) for feed in feeds]


def _window(feed: Feed, first: int, end: int) -> Feed:
    """Return tokens [first, end), counted from the end of the feed with negative numbers, up to
    0."""
    count = len(feed.tokens)
    tokens = feed.tokens[max(count + first, 0) : max(count + end, 0)]
    return Feed(feed.slot, tokens, feed.num_logits if end == 0 else 0)


def padded(model: CachedModel) -> PaddedLM:
    """Return a model with the same weights over left-padded batches.

    Raises ModelNotSupportedError for a model that has no such batches.
    """
    if isinstance(model, Paddable):
        return model.padded()
    if isinstance(model, ModelRunner):
        return PaddedTransformersModel(model)
    raise ModelNotSupportedError(f"{type(model).__name__} cannot run on a left-padded cache")
