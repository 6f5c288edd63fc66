"""Recording rules and alerts, as rules files for Prometheus and for its operator."""

from __future__ import annotations

from typing import Any

import yaml

from k8s.monitoring.generate.alerts import ALERTS, alert_rule
from k8s.monitoring.generate.promql import promql, quantile

BY = "model_name, application, cell"
"""Labels by which recorded figures are grouped: one cell of one application."""
_INTERVAL = "30s"

RECORDED = {
    "specdec:replicas:max": f"max by ({BY}, role) (@specdec_replicas)",
    "specdec:coordinator_start_time_seconds:max": (
        f"max by ({BY}) (@specdec_coordinator_start_time_seconds)"
    ),
    "specdec:num_requests_running:max": f"max by ({BY}) (@specdec_num_requests_running)",
    "specdec:num_requests_waiting:max": f"max by ({BY}) (@specdec_num_requests_waiting)",
    "specdec:kv_cache_usage_perc:max": f"max by ({BY}) (@specdec_kv_cache_usage_perc)",
    "specdec:generation_tokens:rate5m": (
        f"sum by ({BY}) (rate(@specdec_generation_tokens_total[5m]))"
    ),
    "specdec:prompt_tokens:rate5m": f"sum by ({BY}) (rate(@specdec_prompt_tokens_total[5m]))",
    "specdec:draft_tokens:rate5m": (
        f"sum by ({BY}) (rate(@specdec_spec_decode_num_draft_tokens_total[5m]))"
    ),
    "specdec:acceptance_rate:ratio_rate5m": (
        f"sum by ({BY}) (rate(@specdec_spec_decode_num_accepted_tokens_total[5m])) / "
        f"sum by ({BY}) (rate(@specdec_spec_decode_num_draft_tokens_total[5m]))"
    ),
    "specdec:acceptance_length:ratio_rate5m": (
        f"1 + sum by ({BY}) (rate(@specdec_spec_decode_num_accepted_tokens_total[5m])) / "
        f"sum by ({BY}) (rate(@specdec_spec_decode_num_drafts_total[5m]))"
    ),
    "specdec:leases_expired:ratio_rate15m": (
        f"sum by ({BY}, role) (rate(@specdec_leases_expired_total[15m])) / "
        f"sum by ({BY}, role) (rate(@specdec_leases_granted_total[15m]))"
    ),
    "specdec:time_to_first_token_seconds:p99_rate5m": quantile(
        0.99, "time_to_first_token_seconds", BY, "5m"
    ),
    "specdec:e2e_request_latency_seconds:p99_rate5m": quantile(
        0.99, "e2e_request_latency_seconds", BY, "5m"
    ),
}
"""Expressions by recorded name. Prometheus's guide gives the parts of a name: level, metric and
operation."""


def groups(runbook: str) -> dict[str, Any]:
    """Return the groups of a rules file. `runbook` is the address of docs/runbook.md."""
    recorded = [{"record": name, "expr": promql(expr)} for name, expr in RECORDED.items()]
    alerts = [alert_rule(alert, runbook) for alert in ALERTS]
    return {
        "groups": [
            {"name": "specdec.recorded", "interval": _INTERVAL, "rules": recorded},
            {"name": "specdec.alerts", "interval": _INTERVAL, "rules": alerts},
        ]
    }


def rules_file(runbook: str) -> str:
    """Return the file for `rule_files` of a Prometheus."""
    return _text(groups(runbook))


def prometheus_rule(runbook: str) -> str:
    """Return the same rules for the Prometheus operator."""
    return _text(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "specdec", "labels": {"app.kubernetes.io/name": "specdec"}},
            "spec": groups(runbook),
        }
    )


def _text(content: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, width=1000)
    return text
