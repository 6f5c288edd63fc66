"""Derives the cell of a request from its ID, and the part of a cell in a limit over all. Pure.

New IDs are made for the less loaded cell. Every ingress reads the same cell off an ID. An ID that a
client chose is therefore in use in one cell or in none, and an abort knows where to ask first.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from random import Random


def order_of(request_id: str, num_cells: int) -> tuple[int, ...]:
    """Return all cells in the order of a request: its home first, then the substitutes."""

    def weight(cell: int) -> bytes:
        return hashlib.blake2b(f"{cell}:{request_id}".encode(), digest_size=8).digest()

    return tuple(sorted(range(num_cells), key=weight))


def new_id_of(home: int, num_cells: int) -> str:
    """Return a new ID that belongs to cell `home`, after `num_cells` draws on average."""
    while True:
        request_id = uuid.uuid4().hex
        if order_of(request_id, num_cells)[0] == home:
            return request_id


def share_of(limit: int, client: str, cell: int, num_cells: int) -> int:
    """Return the part of a limit over all cells that cell `cell` grants `client`.

    The parts are equal and add up to the limit. The remainder goes to the cells that come first for
    this client.
    """
    whole, rest = divmod(limit, num_cells)
    return whole + (order_of(client, num_cells).index(cell) < rest)


def less_loaded(loads: Mapping[int, float], random: Random) -> int:
    """Return the less loaded of two random cells. If both are equal, return either.

    Loads are a little old. If every ingress chose the least loaded cell, they would flood it until
    it reported its new load.
    """
    two = random.sample(sorted(loads), min(2, len(loads)))
    return min(two, key=loads.__getitem__)
