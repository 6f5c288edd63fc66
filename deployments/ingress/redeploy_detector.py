"""Detects that a redeploy has replaced this ingress's service, which Serve does not report.

Serve stops a target that still loads, and leaves the ingress to its requests. They would wait for
that target until the ingress is ended. Serve checks the health of replicas that run, but not of
those that it is stopping. Missing health checks therefore reveal the redeploy.
"""

from __future__ import annotations

import asyncio

from deployments.ingress.cells.client import Pool

HEALTH_CHECK_PERIOD_S = 2
_LOOK_S = 1.0
_MISSED_CHECKS = 6
"""Missed health checks that mean a redeploy. A Serve controller that dies is back sooner."""

REPLACED = "this service was replaced while it had no target; send it again"


class RedeployDetector:
    """Gives up requests that wait for a target, once Serve no longer checks the ingress's
    health."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._looks: int | None = None
        """Number of looks since the last health check. None before the first check.

        Looks are counted instead of seconds, so that a pause of the process does not count as a
        redeploy.
        """

    def checked(self) -> None:
        """Note that Serve has checked the health of the ingress."""
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
