"""Seconds of a pass of several models over the same rows, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from specdec_core.model import Feed
from specdec_core.worker.model_runner import ModelRunner

_NUM_WARM_UPS = 2


def median_pass_s(
    models: Sequence[ModelRunner],
    batch: int,
    k: int,
    prompt_len: int,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Median of every model for `batch` rows of k + 1 tokens, lengths a little ragged."""
    lengths = [prompt_len + 7 * (row % 5) for row in range(batch)]
    slots = [[cache_prompt(model, length) for length in lengths] for model in models]
    seconds: list[list[float]] = [[] for _ in models]
    for turn in range(repeats + _NUM_WARM_UPS):
        for model, used, measured in zip(models, slots, seconds, strict=True):
            feeds = [Feed(slot, range(10, 11 + k), k + 1) for slot in used]
            started = clock()
            model.score(feeds)
            if turn >= _NUM_WARM_UPS:
                measured.append(clock() - started)
            for slot, length in zip(used, lengths, strict=True):
                model.rollback(slot, length)
    for model, used in zip(models, slots, strict=True):
        for slot in used:
            model.free(slot)
    return [statistics.median(measured) for measured in seconds]


def cache_prompt(model: ModelRunner, length: int) -> int:
    """A new slot with so many tokens."""
    slot = model.allocate()
    model.score([Feed(slot, range(100, 100 + length), 0)])
    return slot
