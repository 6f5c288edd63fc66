"""Which node each cell's coordinator runs on: as far apart as the nodes allow, and where requests
enter. Pure.

A node that ends takes its coordinators with it, and their cells stand still until they have been
started elsewhere. Apart, one end stops one cell. A node that has nothing but a coordinator is a pod
that no autoscaler gives back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set


def best_node(
    cell: int, nodes: Sequence[str], others: Mapping[int, str], entries: Set[str] = frozenset()
) -> str | None:
    """The node with the fewest coordinators of other cells, of those one of the `entries`; None if
    there is no node.

    `others`: cell -> node, as far as it is known. Where several nodes are as good, the cell's
    number decides, so that cells that start together do not all choose the same one.
    """
    if not nodes:
        return None
    count = Counter(others.values())
    ordered = sorted(nodes)
    first = cell % len(ordered)
    return min(
        ordered[first:] + ordered[:first], key=lambda node: (count[node], node not in entries)
    )


def should_move(
    cell: int,
    node: str,
    nodes: Sequence[str],
    others: Mapping[int, str],
    entries: Set[str] = frozenset(),
) -> bool:
    """Whether the coordinator on `node` had better be on another of `nodes`.

    So it is if another node has fewer of other cells, or as few and is one of the `entries`, which
    this one is not. Of those on one node the highest cell moves: one at a time.
    """
    if any(other > cell and place == node for other, place in others.items()):
        return False
    count = Counter(others.values())
    own = count[node], node not in entries
    return any((count[other], other not in entries) < own for other in nodes if other != node)
