"""Chooses the node of each cell's coordinator: as far apart as possible, next to an ingress. Pure.

A node that ends takes its coordinators with it, and their cells stop until these have started
elsewhere. If the coordinators are apart, the end of one node stops one cell. A node with nothing
but a coordinator is a pod that no autoscaler gives back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set


def best_node(
    cell: int, nodes: Sequence[str], others: Mapping[int, str], entries: Set[str] = frozenset()
) -> str | None:
    """Return the node with the minimum number of other cells' coordinators; None if there is no
    node. Among equals, one of the `entries` is preferred.

    `others` maps cell to node, as far as known. If several nodes are equally good, the cell's
    number decides. Cells that start together therefore do not all choose the same node.
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
    """Return True if the coordinator on `node` should move to another of `nodes`.

    Another node is better if it has fewer coordinators of other cells. It is also better if it has
    as few, is one of the `entries`, and this node is not. Of several coordinators on one node only
    that of the highest cell moves, so that one moves at a time.
    """
    if any(other > cell and place == node for other, place in others.items()):
        return False
    count = Counter(others.values())
    own = count[node], node not in entries
    return any((count[other], other not in entries) < own for other in nodes if other != node)
