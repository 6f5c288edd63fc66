"""Whether a redeploy has put another service in this ingress's place: Serve does not say so.

It stops a target that still loads at once, and leaves the ingress to its requests, which would wait
for that target until the ingress is ended. What gives it away: Serve checks the health of replicas
that run, and of none that it is stopping.
"""

from __future__ import annotations

import asyncio

from deployments.ingress.cells.client import Pool

HEALTH_CHECK_PERIOD_S = 2
_LOOK_S = 1.0
_MISSED_CHECKS = 6
"""A controller of Serve that dies is back, and asks again, in less."""

REPLACED = "this service was replaced while it had no target; send it again"


class RedeployDetector:
    """Gives up what waits for a target in an ingress whose health nobody checks any more."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._looks: int | None = None
        """Since the last check; None before the first. Looks, not seconds: a process that was
        stopped for a while has not been left out."""

    def checked(self) -> None:
        """Serve has asked whether the ingress is well."""
        self._looks = 0

    async def keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        if self._looks is None:
            return
        self._looks += 1
        is_left_out = self._looks * _LOOK_S > _MISSED_CHECKS * HEALTH_CHECK_PERIOD_S
        if is_left_out and not self._pool.has_targets:
            self._pool.give_up(REPLACED)
