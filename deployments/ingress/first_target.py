"""An ingress that starts waits for a target, so that it can do what it takes the place of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from deployments.ingress.cells.client import Pool

BEGINS_S = 40.0
"""A target that has a place has begun to load by then. Its process starts with the ingress's, and
takes longer: it has an environment of its own, for which Ray keeps no idle process."""
_LOOK_S = 0.25


async def first_target(
    pool: Pool, has_begun: Callable[[], Awaitable[bool]], begins_s: float = BEGINS_S
) -> None:
    """Returns when some cell has a target, however long it loads. Returns as well when none has
    begun to load after `begins_s`: where there is no room for old and new targets, the new ones
    start when the old ingresses have left.
    """
    loop = asyncio.get_running_loop()
    begins_by = loop.time() + begins_s
    while not pool.has_targets and (loop.time() < begins_by or await has_begun()):
        await asyncio.sleep(_LOOK_S)
