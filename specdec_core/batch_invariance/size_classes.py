"""Size classes: the sizes of a pass whose results have equal bits.

Only three sizes change a row's bits (algorithm.md section 4). They are the rows of a linear, and
the query rows and key length of attention. Kernels change their summation order at some sizes, so
sizes fall into classes of equal bits. Exact numerics calls every kernel with sizes of one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specdec_core.layers.attention.metadata import AttentionShape, SizeRange


class SizeSet(NamedTuple):
    """Ranges of sizes, ascending, whose results all have equal bits."""

    ranges: tuple[SizeRange, ...]

    @property
    def high(self) -> int:
        return self.ranges[-1].high

    def fit(self, size: int) -> int:
        """Return the smallest of the sizes that holds `size`, which is at most `high`."""
        return next(max(size, low) for low, high in self.ranges if size <= high)

    def __str__(self) -> str:
        return "/".join(map(str, self.ranges))


_MAX_TILE_ROWS = 128
"""Maximum rows of a tile. A verification budget is rounded up to whole tiles; larger tiles would
make it useless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTable:
    """Sizes that exact numerics uses for a model on this machine."""

    linears: tuple[tuple[str, SizeSet], ...]
    """(inputs x outputs, rows) of every shape of linear."""
    attention: AttentionShape

    @property
    def tile_rows(self) -> int:
        """Rows that one call of the narrowest linear takes; 0 if it takes most passes whole."""
        narrowest = min((rows.high for _, rows in self.linears), default=0)
        return narrowest if narrowest <= _MAX_TILE_ROWS else 0

    def __str__(self) -> str:
        linears = ", ".join(f"{shape}: {rows} rows" for shape, rows in self.linears)
        return f"{linears or 'linears of any rows'}; {self.attention}"


def cheapest_run(
    is_equal_to_next: Sequence[bool], typical_sizes: Sequence[int], call_cost: int
) -> SizeRange:
    """Return the class of neighbouring sizes 1, 2, ... that serves `typical_sizes` at the least
    cost.

    `is_equal_to_next[i]` is True if sizes i + 1 and i + 2 give the same bits. A size below the
    class is padded, and one above it runs in several calls. A call costs as much as `call_cost`
    units.
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
    """Return the class that slows `typical_sizes` down the least. Of equal classes, return the one
    with most sizes.

    A call takes as long as `call_cost` units or its own units, whichever are more.
    """

    def slowdown(sizes: SizeSet) -> tuple[float, int]:
        total = 0.0
        for size in typical_sizes:
            num_calls = -(-size // sizes.high)
            call = max(sizes.fit(-(-size // num_calls)), call_cost)
            total += num_calls * call / max(size, call_cost)
        return total, sum(low - high - 1 for low, high in sizes.ranges)

    return min(classes, key=slowdown)
