"""An ingress that starts among others counts once there is a target, or when none comes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from deployments.ingress_replica import first_target


class Cells:
    """A target begins to load after a while, and is up after another."""

    def __init__(self, begins_s: float, up_s: float) -> None:
        self._now = asyncio.get_running_loop().time
        self.started = self._now()
        self._begins_s, self._up_s = begins_s, up_s

    @property
    def seconds(self) -> float:
        return self._now() - self.started

    @property
    def has_targets(self) -> bool:
        return self.seconds >= self._up_s

    async def has_begun(self) -> bool:
        return self.seconds >= self._begins_s


async def waited(begins_s: float, up_s: float, patience_s: float) -> bool:
    """Whether a target was there when the wait was over."""
    cells = Cells(begins_s, up_s)
    async with asyncio.timeout(30):
        await first_target(cast(Any, cells), cells.has_begun, patience_s)
    return cells.has_targets


@pytest.mark.parametrize(
    ("begins_s", "up_s", "patience_s"), [(0.0, 0.0, 0.0), (0.1, 0.8, 0.3), (9.0, 0.3, 9.0)]
)
def test_it_waits_for_a_target_that_comes(begins_s: float, up_s: float, patience_s: float) -> None:
    assert asyncio.run(waited(begins_s, up_s, patience_s))


def test_it_does_not_wait_for_one_that_has_no_room() -> None:
    assert not asyncio.run(waited(60.0, 90.0, 0.3))
