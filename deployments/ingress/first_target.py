"""An ingress that starts waits for a target, so that it can do what it takes the place of."""

from __future__ import annotations

import asyncio
import contextlib

from deployments.cells.pool import Pool

TARGET_COMES_S = 300.0
"""A target has read its weights by then, or there is no room for it."""
_LOOK_S = 0.25


async def first_target(pool: Pool, timeout_s: float) -> None:
    """Returns when some cell has a target. After `timeout_s` without one it returns as well: where
    there is no room for old and new targets, the new ones start when the old ingresses have left.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not pool.has_targets:
                await asyncio.sleep(_LOOK_S)
