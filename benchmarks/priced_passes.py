"""Passes that compute nothing and cost what a table says: the prices, and the bill with its clock.

Two tables are known: milliseconds by rows, and what benchmarks/pass_prices measured by sequences,
tokens of each and cached tokens.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.paper.token_model import NoPasses
from deployments.simulation.step_costs import StepTable
from specdec_core.loading.profiler import time_steps
from specdec_core.messages import Role
from specdec_core.model import ForwardInput, ForwardOutput


class PassSize(NamedTuple):
    """What a price depends on."""

    sequences: int
    rows: int
    """Tokens that are fed, of all sequences together."""
    read: int
    """Cached tokens that each row reads, summed over the rows."""


class Prices(Protocol):
    """Seconds of a pass by its size."""

    def seconds(self, size: PassSize) -> float: ...


@dataclass(frozen=True)
class RowPrices:
    """A pass costs its rows, and what they read."""

    rows: StepTable
    fixed_s: float
    """Seconds of every pass besides."""
    cached_s: float
    """Seconds of a row for each token before it."""

    def seconds(self, size: PassSize) -> float:
        return self.rows.at(size.rows) + self.fixed_s + self.cached_s * size.read


@dataclass(frozen=True)
class PassTable:
    """Measured passes: between two sizes on the line through them."""

    by_cached: dict[int, dict[int, StepTable]]
    """Cached tokens of a sequence -> sequences -> seconds by tokens of a sequence."""
    fixed_s: float = 0.0
    """Seconds that a round takes besides its pass."""

    def seconds(self, size: PassSize) -> float:
        tokens, cached = size.rows / size.sequences, size.read / size.rows
        by_cached = [
            (depth, _line((number, table.at(tokens)) for number, table in tables.items()))
            for depth, tables in self.by_cached.items()
        ]
        depths = _line((depth, table.at(size.sequences)) for depth, table in by_cached)
        return depths.at(cached) + self.fixed_s


def _line(points: Iterable[tuple[int, float]]) -> StepTable:
    return StepTable(tuple(sorted(points)))


def read_pass_table(files: Sequence[Path], fixed_s: float = 0.0) -> PassTable:
    """Read results of benchmarks/pass_prices.

    Sizes that only a later file has are scaled to the first one by the passes of one token, because
    a machine differs from hour to hour.
    """
    found: dict[tuple[int, int, int], float] = {}
    for file in files:
        own = {
            (one["cached"], one["sequences"], one["tokens"]): one["median_s"]
            for one in json.loads(file.read_text())["prices"]
        }
        for (cached, sequences, tokens), seconds in own.items():
            plain = cached, sequences, 1
            scale = found.get(plain, own[plain]) / own[plain]
            found.setdefault((cached, sequences, tokens), seconds * scale)
    by_cached: dict[int, dict[int, StepTable]] = {}
    for cached, sequences in dict.fromkeys((c, s) for c, s, _ in found):
        points = ((t, s) for (c, n, t), s in found.items() if (c, n) == (cached, sequences))
        by_cached.setdefault(cached, {})[sequences] = _line(points)
    return PassTable(by_cached, fixed_s)


@dataclass(eq=False)
class Bill:
    """What passes cost, and the virtual clock that they move."""

    prices: Prices
    noise: float = 0.0
    """Noise of a pass on the clock, as a logarithm."""
    rng: random.Random = field(default_factory=random.Random)
    now: float = 0.0
    priced_s: float = 0.0
    decoding_s: float = 0.0
    """Seconds of the passes as if they had no rows of prompts."""

    def perf_counter(self) -> float:
        return self.now

    def add(self, size: PassSize, decoding: PassSize) -> None:
        """Add a pass. `decoding` is the part of it that reads no prompt."""
        seconds = self.prices.seconds(size)
        self.priced_s += seconds
        self.decoding_s += self.prices.seconds(decoding) if decoding.rows else 0.0
        self.now += seconds * math.exp(self.rng.gauss(0.0, self.noise))


class PricedPasses(NoPasses):
    """Passes that compute nothing and go on a bill."""

    def __init__(self, vocab_size: int, bill: Bill) -> None:
        super().__init__(vocab_size)
        self._bill = bill
        self.step_times = time_steps(self, Role.TARGET, clock=bill.perf_counter)

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        # A round has logits at every token; of a prompt's chunk the last token has some, if any.
        decoding = ForwardInput.of(row for row in batch.rows() if row[2] == len(row[1]))
        self._bill.add(self._size(batch), self._size(decoding))
        return super().forward(batch)

    def _size(self, batch: ForwardInput) -> PassSize:
        rows = zip(batch.slots, batch.token_counts, strict=True)
        num_read = sum(count * self.cached_len(slot) for slot, count in rows)
        return PassSize(len(batch.slots), len(batch.token_ids), num_read)
