"""Which node each cell's coordinator runs on: as far apart as the nodes allow. Pure.

A node that ends takes its coordinators with it, and their cells stand still until they have been
started elsewhere. Apart, one end stops one cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def best_node(cell: int, nodes: Sequence[str], others: Mapping[int, str]) -> str | None:
    """The node with the fewest coordinators of other cells; None if there is no node.

    `others`: cell -> node, as far as it is known. Where several nodes have as few, the cell's
    number decides, so that cells that start together do not all choose the same one.
    """
    if not nodes:
        return None
    count = Counter(others.values())
    ordered = sorted(nodes)
    first = cell % len(ordered)
    return min(ordered[first:] + ordered[:first], key=count.__getitem__)


def should_move(cell: int, node: str, nodes: Sequence[str], others: Mapping[int, str]) -> bool:
    """Whether the coordinator on `node` had better be on another of `nodes`.

    So it is if another node would then still have fewer than this one has now. Of those on one node
    the highest cell moves: one at a time.
    """
    here = [other for other, place in others.items() if place == node]
    if not here or max(here) > cell:
        return False
    count = Counter(others.values())
    return any(count[other] < len(here) for other in nodes if other != node)
