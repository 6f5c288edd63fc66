"""Exact and fast numerics: what each promises, and the shapes that keep the promise.

A row's bits depend on three sizes only (algorithm.md section 4): the rows of a linear, the query
rows and the key length of attention. Kernels change their summation order at some sizes, so sizes
fall into classes of equal bits. Exact numerics calls every kernel with sizes of one class.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from specdec_core.errors import ModelNotSupportedError


class Numerics(StrEnum):
    """Whether a row's bits may depend on the rows that share its pass (algorithm.md, section 4)."""

    AUTO = "auto"
    """Exact where the self-check at load passes on this machine and model, and where exact passes
    take at most a tenth longer on a GPU; else fast."""
    EXACT = "exact"
    """A row's logits are bit for bit the same alone, in any batch, and in any chunking."""
    FAST = "fast"
    """Any shape; outputs may differ where the two best choices nearly tie."""


class NotExactError(ModelNotSupportedError):
    """Exact numerics cannot be kept on this machine and model; the message names the operation."""


class SizeRange(NamedTuple):
    """Sizes, both ends included, whose results have equal bits."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


class SizeSet(NamedTuple):
    """Ranges of sizes, ascending, whose results all have equal bits."""

    ranges: tuple[SizeRange, ...]

    @property
    def high(self) -> int:
        return self.ranges[-1].high

    def fit(self, size: int) -> int:
        """The least of the sizes that holds `size`, which is at most `high`."""
        return next(max(size, low) for low, high in self.ranges if size <= high)

    def __str__(self) -> str:
        return "/".join(map(str, self.ranges))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The shapes in which attention is called."""

    queries: SizeRange
    """Queries of a row: fewer are padded, more become several rows."""
    key_lens: tuple[int, ...]
    """Key lengths that are read, ascending; a longer one is a multiple of the last one plus one of
    these."""

    def key_len(self, num_keys: int) -> int:
        """How many keys are read where a row needs `num_keys`, at least 1."""
        num_whole = (num_keys - 1) // self.key_lens[-1] * self.key_lens[-1]
        return num_whole + self.key_lens[bisect_left(self.key_lens, num_keys - num_whole)]

    def __str__(self) -> str:
        if self.queries.high == sys.maxsize and self.key_lens == (1,):
            return "attention of any shape"
        return f"attention {self.queries} queries, keys by {'/'.join(map(str, self.key_lens))}"


FAST_ATTENTION = AttentionShape(queries=SizeRange(1, sys.maxsize), key_lens=(64,))
"""Rounded all the same: few lengths mean few shapes for the kernels to prepare."""


ANY_ATTENTION = AttentionShape(queries=SizeRange(1, sys.maxsize), key_lens=(1,))
"""Of kernels whose results no shape changes."""


_MAX_TILE_ROWS = 128
"""A verification budget is raised to whole tiles: to larger ones it would be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTable:
    """What exact numerics found on a machine for a model: the sizes that it keeps to."""

    linears: tuple[tuple[str, SizeSet], ...]
    """(inputs x outputs, rows) of every shape of linear."""
    attention: AttentionShape

    @property
    def tile_rows(self) -> int:
        """Rows that one call of the narrowest linear takes; 0 where it takes most passes whole."""
        narrowest = min((rows.high for _, rows in self.linears), default=0)
        return narrowest if narrowest <= _MAX_TILE_ROWS else 0

    def __str__(self) -> str:
        linears = ", ".join(f"{shape}: {rows} rows" for shape, rows in self.linears)
        return f"{linears or 'linears of any rows'}; {self.attention}"


def cheapest_run(
    is_equal_to_next: Sequence[bool], typical_sizes: Sequence[int], call_cost: int
) -> SizeRange:
    """The class of neighbouring sizes 1, 2, ... that serves `typical_sizes` at the least cost.

    `is_equal_to_next[i]` says whether sizes i + 1 and i + 2 give the same bits. A size below the
    class is padded, one above it runs in several calls; a call costs as much as `call_cost` units.
    """
    breaks = [index + 1 for index, is_equal in enumerate(is_equal_to_next) if not is_equal]
    lows = [1, *(end + 1 for end in breaks)]
    highs = [*breaks, len(is_equal_to_next) + 1]

    def cost(sizes: SizeRange) -> tuple[int, int]:
        calls = [(-(-size // sizes.high), size) for size in typical_sizes]
        units = sum(max(size, count * sizes.low) + count * call_cost for count, size in calls)
        return units, sizes.low - sizes.high

    return min((SizeRange(*ends) for ends in zip(lows, highs, strict=True)), key=cost)


def fastest_class(
    classes: Sequence[SizeSet], typical_sizes: Sequence[int], call_cost: int
) -> SizeSet:
    """The class that slows `typical_sizes` down the least where a call takes as long as
    `call_cost` units or its own, whichever are more; of equals the one with most sizes."""

    def slowdown(sizes: SizeSet) -> tuple[float, int]:
        total = 0.0
        for size in typical_sizes:
            num_calls = -(-size // sizes.high)
            call = max(sizes.fit(-(-size // num_calls)), call_cost)
            total += num_calls * call / max(size, call_cost)
        return total, sum(low - high - 1 for low, high in sizes.ranges)

    return min(classes, key=slowdown)
