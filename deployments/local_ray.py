"""Starts a Ray on this machine alone."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)

_NEVER_CAME_UP = "timed out during startup"
"""What Ray says, in a bare Exception, when its raylet is not there in time. Seen twice, on a busy
machine: the process had left no word, not even a log, and the next one came up."""


def start_local_ray(**options: Any) -> None:
    """`ray.init`, once more where its raylet never came up."""
    import ray

    try:
        ray.init(address="local", **options)
    except Exception as error:
        if _NEVER_CAME_UP not in str(error):
            raise
        logger.warning("Ray's raylet did not come up: Ray is started once more")
        ray.shutdown()
        ray.init(address="local", **options)
