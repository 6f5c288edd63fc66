"""Alert rules. A section of docs/runbook.md for each says what to check and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from k8s.monitoring.generate.promql import promql
from specdec_core.messages import Role

_WHO = "{{ $labels.application }}, cell {{ $labels.cell }}"


class Severity(StrEnum):
    CRITICAL = "critical"
    """Page the person on call."""
    WARNING = "warning"
    """Look at it today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `expr` is for `promql`; it contains names of recorded series unchanged."""

    name: str
    expr: str
    lasts: str
    """Time for which `expr` must hold before the alert fires."""
    severity: Severity
    summary: str


ALERTS = (
    Alert(
        name="SpecdecNoTarget",
        expr=f'specdec:replicas:max{{role="{Role.TARGET}"}} == 0',
        lasts="1m",
        severity=Severity.CRITICAL,
        summary=f"No target replica is registered ({_WHO}), so no request is answered.",
    ),
    Alert(
        name="SpecdecNoDraft",
        expr=f"""
            specdec:replicas:max{{role="{Role.DRAFT}"}} == 0
            and max_over_time(specdec:replicas:max{{role="{Role.DRAFT}"}}[1h]) > 0
        """,
        lasts="10m",
        severity=Severity.WARNING,
        summary=f"No draft replica is registered ({_WHO}). Answers are correct, but slower.",
    ),
    Alert(
        name="SpecdecCoordinatorRestarted",
        expr="changes(specdec:coordinator_start_time_seconds:max[15m]) > 0",
        lasts="0m",
        severity=Severity.WARNING,
        summary=f"The coordinator has restarted ({_WHO}).",
    ),
    Alert(
        name="SpecdecDivergedOutput",
        expr="""
            sum by (model_name, application, cell) (
                increase(@specdec_diverged_requests_total{numerics="exact"}[1h])
            ) > 0
        """,
        lasts="0m",
        severity=Severity.CRITICAL,
        summary=f"A replay gave other tokens than its client had, with exact numerics ({_WHO}).",
    ),
    Alert(
        name="SpecdecReplayDiverged",
        expr="""
            sum by (model_name, application, cell) (
                increase(@specdec_replay_divergences_total[1h])
            ) > 0
        """,
        lasts="0m",
        severity=Severity.WARNING,
        summary=f"A request that continued after a failure gave other tokens ({_WHO}).",
    ),
    Alert(
        name="SpecdecAcceptanceCollapsed",
        expr="""
            specdec:acceptance_rate:ratio_rate5m
                < 0.5 * avg_over_time(specdec:acceptance_rate:ratio_rate5m[1d])
            and specdec:draft_tokens:rate5m > 1
        """,
        lasts="15m",
        severity=Severity.WARNING,
        summary=f"The acceptance rate is below half of the last day's ({_WHO}).",
    ),
    Alert(
        name="SpecdecKvFull",
        expr="""
            specdec:kv_cache_usage_perc:max > 0.95 and specdec:num_requests_waiting:max > 0
        """,
        lasts="10m",
        severity=Severity.WARNING,
        summary=f"The KV cache of the targets is full and requests wait ({_WHO}).",
    ),
    Alert(
        name="SpecdecQueueLong",
        expr="""
            specdec:num_requests_waiting:max > specdec:num_requests_running:max
            and specdec:num_requests_waiting:max > 8
        """,
        lasts="10m",
        severity=Severity.WARNING,
        summary=f"More requests wait than run ({_WHO}).",
    ),
    Alert(
        name="SpecdecRefusals",
        expr="""
            sum by (model_name, application, cell) (
                rate(@specdec_admission_rejections_total{reason="queue_full"}[5m])
            ) > 0
        """,
        lasts="5m",
        severity=Severity.WARNING,
        summary=f"Requests are refused because the queue is full ({_WHO}).",
    ),
    Alert(
        name="SpecdecRequestsFail",
        expr="""
            sum by (model_name, application, cell, kind) (
                increase(@specdec_failed_requests_total{kind=~"row_failed|pool_failed"}[10m])
            ) > 0
        """,
        lasts="0m",
        severity=Severity.WARNING,
        summary=f"Requests end with {{{{ $labels.kind }}}} ({_WHO}).",
    ),
    Alert(
        name="SpecdecFirstTokenLate",
        expr="specdec:time_to_first_token_seconds:p99_rate5m > 5",
        lasts="10m",
        severity=Severity.WARNING,
        summary=f"More than 1 % of requests wait over 5 s for the first token ({_WHO}).",
    ),
    Alert(
        name="SpecdecLeasesFenced",
        expr="""
            sum by (model_name, application, cell) (
                increase(@specdec_fenced_replicas_total[15m])
            ) > 2
        """,
        lasts="0m",
        severity=Severity.WARNING,
        summary=f"Replicas repeatedly do not answer in time ({_WHO}).",
    ),
    Alert(
        name="SpecdecLeasesExpire",
        expr="specdec:leases_expired:ratio_rate15m > 0.01",
        lasts="10m",
        severity=Severity.WARNING,
        summary=f"More than 1 % of leases to a {{{{ $labels.role }}}} are not answered ({_WHO}).",
    ),
    Alert(
        name="SpecdecAuditsSkipped",
        expr="""
            sum by (model_name, application, cell) (increase(@specdec_audits_skipped_total[1h]))
            > sum by (model_name, application, cell) (
                increase(@specdec_audited_requests_total[1h])
            )
        """,
        lasts="1h",
        severity=Severity.WARNING,
        summary=f"More sampled requests are skipped than audited ({_WHO}).",
    ),
    Alert(
        name="SpecdecMetricsAbsent",
        expr="absent(@specdec_coordinator_start_time_seconds)",
        lasts="10m",
        severity=Severity.CRITICAL,
        summary="No coordinator reports metrics, so no other alert can fire.",
    ),
)


def alert_rule(alert: Alert, runbook: str) -> dict[str, Any]:
    """Return the alert in the form of a rules file."""
    return {
        "alert": alert.name,
        "expr": promql(alert.expr),
        "for": alert.lasts,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "runbook_url": f"{runbook}#{alert.name.lower()}",
        },
    }
