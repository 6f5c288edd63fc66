"""What goes wrong in a world, and when."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from deployments.simulation import strikes
from deployments.simulation.scenario import ARRIVALS_S
from specdec_core.leases import Role
from specdec_core.models.numerics import Numerics

if TYPE_CHECKING:
    from deployments.simulation.trial import Trial

_FIRST_S = 0.1
_RETRY_S = 0.05
_MAX_TRIES = 20
_NUM_KINDS = 5


class FaultKind(StrEnum):
    """Each is planned; client_cancels comes of itself."""

    CLIENT_CANCELS = "client_cancels"
    CLIENT_FLOODS = "client_floods"
    TARGET_CRASHES = "target_crashes"
    TARGET_HANGS = "target_hangs"
    TARGET_DRAINS = "target_drains"
    TARGETS_ARE_REPLACED = "targets_are_replaced"
    """One by one, by targets of other bits. Once per world."""
    DRAFT_CRASHES = "draft_crashes"
    DRAFT_HANGS = "draft_hangs"
    DRAFT_DRAINS = "draft_drains"
    ALL_DRAFTS_CRASH = "all_drafts_crash"
    REPLICA_IS_SLOW = "replica_is_slow"
    REPLICA_LOSES_KV = "replica_loses_kv"
    REPLICA_IS_FOREIGN = "replica_is_foreign"
    """A target of other bits offers itself while others serve."""
    ROW_FAILS = "row_fails"
    COORDINATOR_CRASHES = "coordinator_crashes"
    COORDINATOR_HANGS = "coordinator_hangs"
    INGRESS_CRASHES = "ingress_crashes"
    INGRESS_HANGS = "ingress_hangs"
    """Or reads slowly: its news is merged meanwhile."""
    WORK_STREAM_IS_CUT = "work_stream_is_cut"
    INGRESS_STREAM_IS_CUT = "ingress_stream_is_cut"
    NEWS_IS_LOST = "news_is_lost"
    NEWS_IS_REPEATED = "news_is_repeated"
    NETWORK_IS_SLOW = "network_is_slow"


_OF_EXACT_TARGETS = (FaultKind.TARGETS_ARE_REPLACED, FaultKind.REPLICA_IS_FOREIGN)

_STRIKES: dict[FaultKind, Callable[[Trial], str | None]] = {
    FaultKind.CLIENT_FLOODS: strikes.flood,
    FaultKind.TARGET_CRASHES: partial(strikes.crash, Role.TARGET),
    FaultKind.TARGET_HANGS: partial(strikes.hang, Role.TARGET),
    FaultKind.TARGET_DRAINS: partial(strikes.drain, Role.TARGET),
    FaultKind.TARGETS_ARE_REPLACED: strikes.replace_targets,
    FaultKind.DRAFT_CRASHES: partial(strikes.crash, Role.DRAFT),
    FaultKind.DRAFT_HANGS: partial(strikes.hang, Role.DRAFT),
    FaultKind.DRAFT_DRAINS: partial(strikes.drain, Role.DRAFT),
    FaultKind.ALL_DRAFTS_CRASH: strikes.all_drafts_crash,
    FaultKind.REPLICA_IS_SLOW: strikes.slow_replica,
    FaultKind.REPLICA_LOSES_KV: strikes.lose_kv,
    FaultKind.REPLICA_IS_FOREIGN: strikes.foreign,
    FaultKind.ROW_FAILS: strikes.row_fails,
    FaultKind.COORDINATOR_CRASHES: strikes.crash_coordinator,
    FaultKind.COORDINATOR_HANGS: strikes.hang_coordinator,
    FaultKind.INGRESS_CRASHES: strikes.crash_ingress,
    FaultKind.INGRESS_HANGS: strikes.hang_ingress,
    FaultKind.WORK_STREAM_IS_CUT: strikes.cut_work,
    FaultKind.INGRESS_STREAM_IS_CUT: strikes.cut_ingress,
    FaultKind.NEWS_IS_LOST: strikes.lose_news,
    FaultKind.NEWS_IS_REPEATED: strikes.repeat_news,
    FaultKind.NETWORK_IS_SLOW: strikes.slow_network,
}


def plan_faults(trial: Trial) -> None:
    """At least 8 faults of at least 4 kinds, while requests come."""
    kinds = list(_STRIKES)
    if trial.scenario.numerics is not Numerics.EXACT:
        kinds = [kind for kind in kinds if kind not in _OF_EXACT_TARGETS]
    chosen = trial.random.sample(kinds, _NUM_KINDS)
    more = [kind for kind in kinds if kind is not FaultKind.TARGETS_ARE_REPLACED]
    chosen += trial.random.choices(more, k=trial.random.randint(4, 8))
    for kind in chosen:
        time = trial.random.uniform(_FIRST_S, ARRIVALS_S)
        trial.later(time, partial(_strike, trial, kind, _MAX_TRIES))


def _strike(trial: Trial, kind: FaultKind, tries: int) -> None:
    """Let it happen, a little later where there is nothing that it could happen to; where that does
    not change, more requests are needed."""
    struck = _STRIKES[kind](trial)
    if struck is not None:
        trial.record.fault(kind, struck)
    elif tries:
        trial.later(_RETRY_S, partial(_strike, trial, kind, tries - 1))
    else:
        _strike(trial, FaultKind.CLIENT_FLOODS, 0)
