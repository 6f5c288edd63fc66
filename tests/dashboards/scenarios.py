"""For every alert what makes it fire, and what is nearly that, as series of Ray's port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """`series`: a sample without its prefix -> Prometheus's notation of its values, one a minute;
    `a+bxn` are n + 1 values from a on by steps of b."""

    alert: str
    fires: bool
    at: str
    series: Mapping[str, str]


def both(
    alert: str, at: str, *, fires: Mapping[str, str], quiet: Mapping[str, str]
) -> tuple[Scenario, Scenario]:
    return Scenario(alert, True, at, fires), Scenario(alert, False, at, quiet)


_DRAFTED = "spec_decode_num_draft_tokens_total"
_ACCEPTED = "spec_decode_num_accepted_tokens_total"
_FIRST = "time_to_first_token_seconds_bucket"

SCENARIOS = (
    *both(
        "SpecdecNoTarget",
        "5m",
        fires={'replicas{role="target"}': "2 2 0 0 0 0 0"},
        quiet={'replicas{role="target"}': "2 2 0 1 1 1 1"},
    ),
    *both(
        "SpecdecNoDraft",
        "40m",
        fires={'replicas{role="draft"}': "1x20 0x60"},
        quiet={'replicas{role="draft"}': "0x80"},
    ),
    *both(
        "SpecdecCoordinatorRestarted",
        "20m",
        fires={"coordinator_start_time_seconds": "1000x10 2000x20"},
        quiet={"coordinator_start_time_seconds": "1000x30"},
    ),
    *both(
        "SpecdecDivergedOutput",
        "30m",
        fires={'diverged_requests_total{numerics="exact"}': "0x10 1x30"},
        quiet={'diverged_requests_total{numerics="fast"}': "0x10 1x30"},
    ),
    *both(
        "SpecdecReplayDiverged",
        "30m",
        fires={"replay_divergences_total": "0x10 1x30"},
        quiet={"replay_divergences_total": "3x40"},
    ),
    *both(
        "SpecdecAcceptanceCollapsed",
        "5h",
        fires={_DRAFTED: "0+600x400", _ACCEPTED: "0+400x240 96000+100x160"},
        quiet={_DRAFTED: "0+600x400", _ACCEPTED: "0+400x240 96000+300x160"},
    ),
    *both(
        "SpecdecKvFull",
        "20m",
        fires={"kv_cache_usage_perc": "0.97x30", "num_requests_waiting": "1x30"},
        quiet={"kv_cache_usage_perc": "0.97x30", "num_requests_waiting": "0x30"},
    ),
    *both(
        "SpecdecQueueLong",
        "20m",
        fires={"num_requests_waiting": "40x30", "num_requests_running": "32x30"},
        quiet={"num_requests_waiting": "8x30", "num_requests_running": "1x30"},
    ),
    *both(
        "SpecdecRefusals",
        "20m",
        fires={'admission_rejections_total{reason="queue_full"}': "0+1x30"},
        quiet={'admission_rejections_total{reason="invalid_request"}': "0+1x30"},
    ),
    *both(
        "SpecdecRequestsFail",
        "20m",
        fires={'failed_requests_total{kind="row_failed"}': "0x14 1x20"},
        quiet={'failed_requests_total{kind="deadline"}': "0x14 1x20"},
    ),
    *both(
        "SpecdecFirstTokenLate",
        "30m",
        fires={
            f'{_FIRST}{{le="5"}}': "0+90x40",
            f'{_FIRST}{{le="10"}}': "0+100x40",
            f'{_FIRST}{{le="+Inf"}}': "0+100x40",
        },
        quiet={f'{_FIRST}{{le="5"}}': "0+100x40", f'{_FIRST}{{le="+Inf"}}': "0+100x40"},
    ),
    *both(
        "SpecdecLeasesFenced",
        "20m",
        fires={"fenced_replicas_total": "0x9 1 2 3 4x20"},
        quiet={"fenced_replicas_total": "0x9 1x20"},
    ),
    *both(
        "SpecdecLeasesExpire",
        "40m",
        fires={
            'leases_granted_total{role="draft"}': "0+100x60",
            'leases_expired_total{role="draft"}': "0+2x60",
        },
        quiet={
            'leases_granted_total{role="draft"}': "0+1000x60",
            'leases_expired_total{role="draft"}': "0+2x60",
        },
    ),
    *both(
        "SpecdecAuditsSkipped",
        "3h",
        fires={"audits_skipped_total": "0+5x200", "audited_requests_total": "0+4x200"},
        quiet={"audits_skipped_total": "0+4x200", "audited_requests_total": "0+5x200"},
    ),
    *both(
        "SpecdecMetricsAbsent",
        "15m",
        fires={"replicas": "1x30"},
        quiet={"coordinator_start_time_seconds": "1000x30"},
    ),
)
