"""An ingress that starts among others counts once there is a target, or after a while."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from deployments.ingress.first_target import first_target


class Cells:
    has_targets = False


async def waited(cells: Cells, *, target_after_s: float | None, timeout_s: float) -> float:
    """Seconds that it took."""
    loop = asyncio.get_running_loop()
    if target_after_s is not None:
        loop.call_later(target_after_s, setattr, cells, "has_targets", True)
    began = loop.time()
    await first_target(cast(Any, cells), timeout_s)
    return loop.time() - began


def test_it_waits_for_a_target() -> None:
    cells = Cells()
    seconds = asyncio.run(waited(cells, target_after_s=0.6, timeout_s=60.0))
    assert cells.has_targets
    assert 0.5 < seconds < 30.0


def test_with_a_target_it_does_not_wait() -> None:
    cells = Cells()
    cells.has_targets = True
    assert asyncio.run(waited(cells, target_after_s=None, timeout_s=60.0)) < 30.0


def test_it_does_not_wait_for_ever() -> None:
    cells = Cells()
    asyncio.run(waited(cells, target_after_s=None, timeout_s=0.3))
    assert not cells.has_targets
