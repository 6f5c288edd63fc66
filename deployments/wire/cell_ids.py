"""Which cell a request belongs to: its id says so, and ids are made for the less loaded cell. And
what is a cell's of a limit over all of them. Pure.

Every ingress reads the same cell off an id. So an id that a client chose is in use in one cell or
in none, and an abort knows where to ask first.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from random import Random


def order_of(request_id: str, num_cells: int) -> tuple[int, ...]:
    """The cells by how much `request_id` belongs to them: its home first, then the stand-ins."""

    def weight(cell: int) -> bytes:
        return hashlib.blake2b(f"{cell}:{request_id}".encode(), digest_size=8).digest()

    return tuple(sorted(range(num_cells), key=weight))


def new_id_of(home: int, num_cells: int) -> str:
    """A fresh id that belongs to cell `home`; takes `num_cells` draws on average."""
    while True:
        request_id = uuid.uuid4().hex
        if order_of(request_id, num_cells)[0] == home:
            return request_id


def share_of(limit: int, client: str, cell: int, num_cells: int) -> int:
    """What cell `cell` lets `client` have of a limit over all cells, of which these are the whole:
    equal parts, what is left over goes to the cells that come first for this client."""
    whole, rest = divmod(limit, num_cells)
    return whole + (order_of(client, num_cells).index(cell) < rest)


def less_loaded(loads: Mapping[int, float], random: Random) -> int:
    """Of two cells that chance picks, the less loaded; of equals, either.

    Loads are a little old. The least of all would be flooded by every ingress until it says so.
    """
    two = random.sample(sorted(loads), min(2, len(loads)))
    return min(two, key=loads.__getitem__)
