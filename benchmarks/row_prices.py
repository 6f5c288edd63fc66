"""Price of a verification row: passes of 1 to 32 sequences with 1 to 16 tokens each.

All sizes are timed in turns, so that a slow minute of the machine meets each of them.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from specdec_core.model import CachedModel, score
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.worker.round import round_row, score_and_verify

SEQUENCES = (1, 8, 16, 32)
TOKENS = (1, 2, 3, 5, 9, 16)
CACHED = (100, 200, 400)
_RULES = SamplingRules(SamplingParams(temperature=0.0), max(CACHED))
_TOKEN = 5
"""Token that is fed; a pass takes as long for any other."""


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds of passes of one size."""

    cached: int
    """Cached tokens of each sequence."""
    sequences: int
    tokens: int
    """Tokens of each sequence: the pending one and the drafted ones."""
    quarter_s: float
    median_s: float
    three_quarters_s: float
    drafted_row: float | None
    """Cost of one drafted token, as a share of a token of plain decoding; None without drafts."""


def prices(
    model: CachedModel,
    cached: int,
    rounds: int,
    tokens: Sequence[int] = TOKENS,
    sequences: Sequence[int] = SEQUENCES,
    clock: Callable[[], float] = time.perf_counter,
    on_round: Callable[[], None] = lambda: None,
) -> list[Price]:
    """Time `rounds` passes of each size, with `cached` tokens of each sequence."""
    slots = [_cached_slot(model, cached, seed) for seed in range(max(sequences))]
    sizes = list(product(sequences, sorted({1, *tokens})))
    seconds: dict[tuple[int, int], list[float]] = {size: [] for size in sizes}
    for turn in range(rounds + 1):
        for size in sizes:
            took = _pass_s(model, slots[: size[0]], size[1], cached, clock)
            if turn > 0:  # the first pass of a size may build what others use
                seconds[size].append(took)
        on_round()
    for slot in slots:
        model.free(slot)
    return list(_told(cached, seconds))


def _cached_slot(model: CachedModel, cached: int, seed: int) -> int:
    draw = random.Random(seed)
    slot = model.allocate()
    score(model, [(slot, [draw.randrange(model.vocab_size) for _ in range(cached)], 0)])
    return slot


def _pass_s(
    model: CachedModel, slots: Sequence[int], tokens: int, cached: int, clock: Callable[[], float]
) -> float:
    drafted = (_TOKEN,) * (tokens - 1)
    started = clock()
    score_and_verify(model, [round_row(slot, (_TOKEN,), drafted, tokens, _RULES) for slot in slots])
    took = clock() - started
    for slot in slots:
        model.rollback(slot, cached)
    return took


def _told(cached: int, seconds: dict[tuple[int, int], list[float]]) -> Iterator[Price]:
    for (sequences, tokens), found in seconds.items():
        quarter, median, three_quarters = statistics.quantiles(found, n=4)
        plain = statistics.median(seconds[sequences, 1])
        share = (median - plain) / ((tokens - 1) * plain) if tokens > 1 else None
        yield Price(cached, sequences, tokens, quarter, median, three_quarters, share)


def table(found: Sequence[Price]) -> str:
    """Return a line for each size: milliseconds, and the price of a drafted token."""
    lines = ["cached  sequences  tokens     ms  (quartiles)        a drafted row, in plain tokens"]
    for one in found:
        share = "" if one.drafted_row is None else f"{one.drafted_row:.2f}"
        spread = f"({one.quarter_s * 1e3:.1f} to {one.three_quarters_s * 1e3:.1f})"
        lines.append(
            f"{one.cached:6}  {one.sequences:9}  {one.tokens:6}  {one.median_s * 1e3:5.1f}  "
            f"{spread:18} {share}"
        )
    return "\n".join(lines)
