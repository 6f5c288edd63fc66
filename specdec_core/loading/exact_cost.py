"""Cost of exact numerics on a GPU: passes of a few sizes, timed in both numerics at load.

A CPU needs no such test, because its exact kernels are its fast ones.
"""

from __future__ import annotations

import logging

from specdec_core.loading.profiler import time_steps
from specdec_core.loading.self_check import in_fast_numerics, make_fast
from specdec_core.messages import Role
from specdec_core.worker.model_runner import ModelRunner

MAX_COST = 0.1
"""Maximum extra time of an exact pass, as a share of the fast pass's time. If exact passes cost
more, `auto` uses fast numerics."""
_SIZES = ((1, 1), (8, 5), (32, 5))
"""(sequences, rows of each): one sequence alone, and two sizes of verifications."""

_logger = logging.getLogger(__name__)


def leave_exact_if_expensive(model: ModelRunner) -> None:
    """Return an exact GPU model to fast numerics if exact passes of any size cost more than
    MAX_COST.

    The log reports the measured costs.
    """
    if model.device.type == "cpu":
        return
    costs = cost_of_exact(model)
    text = ", ".join(f"{cost:+.0%} of the time of {rows} rows" for rows, cost in costs.items())
    if max(costs.values(), default=0.0) <= MAX_COST:
        _logger.info("using exact numerics, which cost %s", text or "an unknown time")
        return
    make_fast(model)
    _logger.warning(
        "exact numerics cost more than the %.0f %% that --numerics auto allows (%s); "
        "using fast numerics. Set --numerics exact to use exact numerics at any cost",
        100 * MAX_COST,
        text,
    )


def cost_of_exact(model: ModelRunner) -> dict[int, float]:
    """Return the extra time of an exact pass, as a share of the fast pass's time, by rows of the
    pass. Sizes that do not fit into the cache are left out."""
    exact = _times(model)
    with in_fast_numerics(model):
        fast = _times(model)
    return {rows: exact[rows] / fast[rows] - 1.0 for rows in exact if rows in fast}


def _times(model: ModelRunner) -> dict[int, float]:
    """Return seconds by number of rows. The first run records the passes; the second run is
    timed."""
    time_steps(model, Role.TARGET, sizes=_SIZES)
    return {time.num_rows: time.seconds for time in time_steps(model, Role.TARGET, sizes=_SIZES)}
