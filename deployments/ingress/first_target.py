"""Makes a starting ingress wait for a target, so that it can replace its predecessor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from deployments.ingress.cells.client import Pool

BEGINS_S = 40.0
"""Seconds after the start by which a target that has a place has begun to load.

Its process starts with the ingress's and takes longer. It has its own environment, for which Ray
keeps no idle process.
"""
_LOOK_S = 0.25


async def first_target(
    pool: Pool, has_begun: Callable[[], Awaitable[bool]], begins_s: float = BEGINS_S
) -> None:
    """Return when some cell has a target, however long the target loads.

    Return as well if no target has begun to load after `begins_s`. If there is no room for old and
    new targets, the new ones start after the old ingresses have left.
    """
    loop = asyncio.get_running_loop()
    begins_by = loop.time() + begins_s
    while not pool.has_targets and (loop.time() < begins_by or await has_begun()):
        await asyncio.sleep(_LOOK_S)
