"""Starts a Ray on this machine alone."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)

_NEVER_CAME_UP = "timed out during startup"
"""What Ray says, in a bare Exception, when its raylet is not there after 30 s. Nothing sets how
long it waits. Seen once: the process was gone and had left no word, not even a log."""


def start_local_ray(**options: Any) -> None:
    """`ray.init`, once more where its raylet never came up."""
    import ray

    try:
        ray.init(address="local", **options)
    except Exception as error:
        if _NEVER_CAME_UP not in str(error):
            raise
        logger.warning("Ray did not come up within 30 s: it is started once more")
        ray.shutdown()
        ray.init(address="local", **options)
