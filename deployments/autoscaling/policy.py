"""The policy that Serve's controller asks about all deployments of the application together.

Serve copies this module into the controller by value. What the module needs is therefore imported,
not defined here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

from deployments.autoscaling.decision import ApplicationState, Memory, decide
from deployments.autoscaling.reports import newest_signals
from deployments.autoscaling.signals import CellSignals
from deployments.config.scaling import Bounds, Thresholds
from deployments.names import INGRESS, deployment_name
from specdec_core.messages import Role

logger = logging.getLogger("ray.serve")
"""The logger that the controller writes into its file."""


class Context(Protocol):
    """The part of Serve's AutoscalingContext that is used."""

    target_num_replicas: int
    capacity_adjusted_min_replicas: int
    capacity_adjusted_max_replicas: int
    current_time: float | None

    @property
    def total_num_requests(self) -> float: ...

    @property
    def raw_metrics(self) -> Mapping[str, Mapping[Any, Any]] | None: ...


class PoolPolicy:
    """The policy object of the application.

    Serve makes it from the application's policy_kwargs, and calls it in every turn of its control
    loop.
    """

    def __init__(self, *, cells: int, aims: Mapping[str, float]) -> None:
        self._cells = cells
        self._aims = Thresholds(**aims)  # type: ignore[arg-type]
        self._memory = Memory()

    def __call__(self, contexts: Mapping[Any, Context]) -> tuple[dict[Any, int], dict[Any, Any]]:
        """Return numbers by deployment ID. Serve has no state to keep."""
        try:
            return self._numbers(contexts), {}
        except Exception:  # Serve would not update the application any more, nor end it
            logger.exception("autoscaling failed; the numbers of replicas stay unchanged")
            return {}, {}

    def _numbers(self, contexts: Mapping[Any, Context]) -> dict[Any, int]:
        by_name = {deployment_id.name: context for deployment_id, context in contexts.items()}
        state = self._state(by_name)
        decision = decide(state, self._aims, self._memory, time.monotonic())
        self._memory = decision.memory
        for change in decision.changes:
            logger.info(str(change))
        ids = {deployment_id.name: deployment_id for deployment_id in contexts}
        return {ids[name]: number for name, number in decision.numbers.items()}

    def _state(self, contexts: Mapping[str, Context]) -> ApplicationState:
        ingress = contexts.get(INGRESS)
        return ApplicationState(
            current={name: context.target_num_replicas for name, context in contexts.items()},
            bounds={name: _bounds(context) for name, context in contexts.items()},
            cells=self._signals(contexts),
            num_requests=ingress.total_num_requests if ingress is not None else 0.0,
        )

    def _signals(self, contexts: Mapping[str, Context]) -> dict[int, CellSignals]:
        """Return the signals of each cell, as its targets report them.

        A cell always has a target, but not always a draft replica.
        """
        signals_by_cell: dict[int, CellSignals] = {}
        for cell in range(self._cells):
            context = contexts.get(deployment_name(Role.TARGET, cell))
            if context is None:
                continue
            signals = newest_signals(context.raw_metrics or {}, context.current_time)
            if signals is not None:
                signals_by_cell[cell] = signals
        return signals_by_cell


def _bounds(context: Context) -> Bounds:
    return Bounds(context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas)
