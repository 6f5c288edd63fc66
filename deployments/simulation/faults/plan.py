"""The kinds of faults, and their choice and times in a world."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial

from deployments.simulation.faults import on_coordinators, on_edges, on_replicas
from deployments.simulation.scenario import ARRIVALS_S
from deployments.simulation.trial import Trial
from specdec_core.config import Numerics
from specdec_core.messages import Role

_FIRST_S = 0.1
_RETRY_S = 0.05
_MAX_TRIES = 20
_NUM_KINDS = 5
_AT_ONCE = 4


class FaultKind(StrEnum):
    """Kinds of faults. All are planned but client_cancels, which comes from the clients."""

    CLIENT_CANCELS = "client_cancels"
    CLIENT_FLOODS = "client_floods"
    CLIENTS_LEAVE = "clients_leave"
    """Many at the same time."""
    SEVERAL_AT_ONCE = "several_at_once"
    """Other faults, at the same moment."""
    TARGET_CRASHES = "target_crashes"
    TARGET_HANGS = "target_hangs"
    TARGET_DRAINS = "target_drains"
    TARGETS_ARE_REPLACED = "targets_are_replaced"
    """One by one, by targets with another fingerprint. Once per world."""
    ALL_ARE_RESTARTED = "all_are_restarted"
    """One by one, targets and drafts."""
    DRAFT_CRASHES = "draft_crashes"
    DRAFT_HANGS = "draft_hangs"
    DRAFT_DRAINS = "draft_drains"
    ALL_DRAFTS_CRASH = "all_drafts_crash"
    REPLICA_IS_SLOW = "replica_is_slow"
    REPLICA_CRASHES_AGAIN = "replica_crashes_again"
    """Several times, as soon as it is back."""
    REPLICA_HAS_A_WRONG_CLOCK = "replica_has_a_wrong_clock"
    REPLICA_LOSES_KV = "replica_loses_kv"
    REPLICA_IS_FOREIGN = "replica_is_foreign"
    """A target with another fingerprint registers while others serve."""
    ROW_FAILS = "row_fails"
    ANSWER_IS_NONSENSE = "answer_is_nonsense"
    """A replica sends an impossible token. Its stream ends, and it starts again."""
    COORDINATOR_CRASHES = "coordinator_crashes"
    COORDINATOR_HANGS = "coordinator_hangs"
    COORDINATOR_IS_SUPERSEDED = "coordinator_is_superseded"
    """It hangs, another is created, and it continues next to that one."""
    SERVICE_IS_REDEPLOYED = "service_is_redeployed"
    """Another version serves new requests, this one those that it has begun. Once per world."""
    INGRESS_CRASHES = "ingress_crashes"
    CLIENTS_RESUME = "clients_resume"
    """Their ingress crashes, and they resume at another one with their tokens."""
    INGRESS_HANGS = "ingress_hangs"
    """Like a slow reader: its events are merged meanwhile."""
    WORK_STREAM_IS_CUT = "work_stream_is_cut"
    WORK_STREAM_FALLS_SILENT = "work_stream_falls_silent"
    """Neither end gets an error; both find out by their time limits."""
    INGRESS_STREAM_FALLS_SILENT = "ingress_stream_falls_silent"
    INGRESS_STREAM_IS_CUT = "ingress_stream_is_cut"
    NEWS_IS_LOST = "news_is_lost"
    NEWS_IS_REPEATED = "news_is_repeated"
    NETWORK_IS_SLOW = "network_is_slow"


_OF_EXACT_TARGETS = (FaultKind.TARGETS_ARE_REPLACED, FaultKind.REPLICA_IS_FOREIGN)
_ONCE = (
    FaultKind.TARGETS_ARE_REPLACED,
    FaultKind.SERVICE_IS_REDEPLOYED,
    FaultKind.WORK_STREAM_FALLS_SILENT,
    FaultKind.INGRESS_STREAM_FALLS_SILENT,
)
"""At most once in a world, because their effect lasts, or takes ten seconds to be noticed."""

_STRIKES: dict[FaultKind, Callable[[Trial], str | None]] = {
    FaultKind.CLIENT_FLOODS: on_edges.flood,
    FaultKind.CLIENTS_LEAVE: on_edges.leave,
    FaultKind.TARGET_CRASHES: partial(on_replicas.crash, Role.TARGET),
    FaultKind.TARGET_HANGS: partial(on_replicas.hang, Role.TARGET),
    FaultKind.TARGET_DRAINS: partial(on_replicas.drain, Role.TARGET),
    FaultKind.TARGETS_ARE_REPLACED: on_replicas.replace_targets,
    FaultKind.ALL_ARE_RESTARTED: on_replicas.restart_all,
    FaultKind.DRAFT_CRASHES: partial(on_replicas.crash, Role.DRAFT),
    FaultKind.DRAFT_HANGS: partial(on_replicas.hang, Role.DRAFT),
    FaultKind.DRAFT_DRAINS: partial(on_replicas.drain, Role.DRAFT),
    FaultKind.ALL_DRAFTS_CRASH: on_replicas.all_drafts_crash,
    FaultKind.REPLICA_IS_SLOW: on_replicas.slow_replica,
    FaultKind.REPLICA_CRASHES_AGAIN: on_replicas.crash_again,
    FaultKind.REPLICA_HAS_A_WRONG_CLOCK: on_replicas.wrong_clock,
    FaultKind.REPLICA_LOSES_KV: on_replicas.lose_kv,
    FaultKind.REPLICA_IS_FOREIGN: on_replicas.foreign,
    FaultKind.ROW_FAILS: on_replicas.row_fails,
    FaultKind.ANSWER_IS_NONSENSE: on_replicas.nonsense,
    FaultKind.COORDINATOR_CRASHES: on_coordinators.crash_coordinator,
    FaultKind.COORDINATOR_HANGS: on_coordinators.hang_coordinator,
    FaultKind.COORDINATOR_IS_SUPERSEDED: on_coordinators.supersede,
    FaultKind.SERVICE_IS_REDEPLOYED: on_coordinators.redeploy,
    FaultKind.INGRESS_CRASHES: on_edges.crash_ingress,
    FaultKind.CLIENTS_RESUME: on_edges.crash_and_resume,
    FaultKind.INGRESS_HANGS: on_edges.hang_ingress,
    FaultKind.WORK_STREAM_IS_CUT: on_replicas.cut_work,
    FaultKind.INGRESS_STREAM_IS_CUT: on_edges.cut_ingress,
    FaultKind.WORK_STREAM_FALLS_SILENT: on_replicas.silent_work,
    FaultKind.INGRESS_STREAM_FALLS_SILENT: on_edges.silent_ingress,
    FaultKind.NEWS_IS_LOST: on_edges.lose_news,
    FaultKind.NEWS_IS_REPEATED: on_edges.repeat_news,
    FaultKind.NETWORK_IS_SLOW: on_edges.slow_network,
}


def plan_faults(trial: Trial) -> None:
    """Plan at least 8 faults of at least 4 kinds, while requests come."""
    kinds = [*_kinds(trial), FaultKind.SEVERAL_AT_ONCE]
    chosen = trial.random.sample(kinds, _NUM_KINDS)
    more = [*_repeatable(trial), FaultKind.SEVERAL_AT_ONCE]
    chosen += trial.random.choices(more, k=trial.random.randint(4, 8))
    for kind in chosen:
        time = trial.random.uniform(_FIRST_S, ARRIVALS_S)
        trial.later(time, partial(_plan, trial, kind, _MAX_TRIES))


def _kinds(trial: Trial) -> list[FaultKind]:
    """Return the kinds of single faults that are possible in this world."""
    is_exact = trial.scenario.numerics is Numerics.EXACT
    return [kind for kind in _STRIKES if is_exact or kind not in _OF_EXACT_TARGETS]


def _repeatable(trial: Trial) -> list[FaultKind]:
    """Return the kinds that may strike more than once."""
    return [kind for kind in _kinds(trial) if kind not in _ONCE]


def _plan(trial: Trial, kind: FaultKind, tries: int) -> None:
    """Let a fault strike. If there is nothing to strike, try again a little later. If that never
    helps, strike with another kind, the rarest so far first."""
    struck = _several_at_once(trial) if kind is FaultKind.SEVERAL_AT_ONCE else _strike(trial, kind)
    if struck:
        return
    if tries:
        trial.later(_RETRY_S, partial(_plan, trial, kind, tries - 1))
    else:
        others = sorted(_repeatable(trial), key=lambda other: trial.record.faults[other])
        any(_strike(trial, other) for other in others)


def _strike(trial: Trial, kind: FaultKind) -> bool:
    struck = _STRIKES[kind](trial)
    if struck is not None:
        trial.record.fault(kind, struck)
    return struck is not None


def _several_at_once(trial: Trial) -> bool:
    able = _repeatable(trial)
    struck = [kind for kind in trial.random.sample(able, _AT_ONCE) if _strike(trial, kind)]
    if len(struck) > 1:
        trial.record.fault(FaultKind.SEVERAL_AT_ONCE, ", ".join(struck))
    return len(struck) > 1
