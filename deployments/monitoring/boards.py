"""What the four dashboards show."""

from __future__ import annotations

from deployments.metrics.registry import CELL, MODEL_NAME
from deployments.monitoring.grafana import Board, Panel
from deployments.monitoring.promql import mean, quantile

_W = "$__rate_interval"
_CELLS = {
    "model": ("specdec_replicas", MODEL_NAME),
    "cell": ("specdec_replicas", CELL),
}
_REPLICAS = {**_CELLS, "replica": ("specdec_replica_rows_total", "replica_id")}


def _rate(sample: str, by: str = "") -> str:
    return f"sum by ({by}) (rate(@specdec_{sample}[{_W}]))"


def _quantiles(metric: str, *shares: float) -> dict[str, str]:
    return {f"P{100 * share:g}": quantile(share, metric, "", _W) for share in shares}


def _one(expr: str, legend: str = "") -> dict[str, str]:
    return {legend: expr}


SERVICE = Board(
    name="service",
    title="specdec / service",
    variables=_CELLS,
    panels=(
        Panel(
            "Requests that ended",
            _one(_rate("request_success_total", "finished_reason"), "{{finished_reason}}"),
            "reqps",
        ),
        Panel(
            "Tokens",
            {
                "generated": _rate("generation_tokens_total"),
                "prompts": _rate("prompt_tokens_total"),
            },
            "short",
            "Per second.",
        ),
        Panel(
            "Requests",
            {
                "running": "sum(@specdec_num_requests_running)",
                "waiting": "sum(@specdec_num_requests_waiting)",
            },
        ),
        Panel(
            "Time to first token",
            _quantiles("time_to_first_token_seconds", 0.5, 0.9, 0.99),
            "s",
        ),
        Panel(
            "Between news of a request",
            _quantiles("inter_token_latency_seconds", 0.5, 0.9, 0.99),
            "s",
        ),
        Panel(
            "Whole request",
            _quantiles("e2e_request_latency_seconds", 0.5, 0.9, 0.99),
            "s",
        ),
        Panel(
            "Where a request's time goes",
            {
                part: mean(f"request_{part}_time_seconds", "", _W)
                for part in ("queue", "prefill", "decode")
            },
            "s",
            "Means.",
        ),
        Panel(
            "Time per output token",
            _quantiles("request_time_per_output_token_seconds", 0.5, 0.99),
            "s",
        ),
        Panel(
            "Waiting, by reason",
            _one("sum by (reason) (@specdec_num_requests_waiting_by_reason)", "{{reason}}"),
        ),
        Panel(
            "KV in use",
            _one("max by (cell) (@specdec_kv_cache_usage_perc)", "cell {{cell}}"),
            "percentunit",
        ),
        Panel(
            "Prompt tokens found in the prefix cache",
            _one(f"{_rate('prefix_cache_hits_total')} / {_rate('prefix_cache_queries_total')}"),
            "percentunit",
        ),
        Panel("Preemptions", _one(_rate("num_preemptions_total")), "ops"),
        Panel(
            "Refused",
            _one(_rate("admission_rejections_total", "reason"), "{{reason}}"),
            "reqps",
        ),
        Panel("Failed", _one(_rate("failed_requests_total", "kind"), "{{kind}}"), "reqps"),
        Panel(
            "Tokens by API key",
            _one(_rate("client_generation_tokens_total", "client"), "{{client}}"),
            "short",
            "Per second.",
        ),
        Panel(
            "Running by API key",
            _one("sum by (client) (@specdec_client_requests_running)", "{{client}}"),
        ),
        Panel(
            "Request duration, GenAI conventions",
            _one(
                "histogram_quantile(0.99, sum by (le) "
                f"(rate(@gen_ai_server_request_duration_seconds_bucket[{_W}])))",
                "P99",
            ),
            "s",
        ),
    ),
)

SPECULATION = Board(
    name="speculation",
    title="specdec / speculation",
    variables=_CELLS,
    panels=(
        Panel(
            "Acceptance rate",
            _one(
                f"{_rate('spec_decode_num_accepted_tokens_total', 'cell')} / "
                f"{_rate('spec_decode_num_draft_tokens_total', 'cell')}",
                "cell {{cell}}",
            ),
            "percentunit",
            "Accepted of the drafted tokens.",
        ),
        Panel(
            "Mean acceptance length",
            _one(
                f"1 + {_rate('spec_decode_num_accepted_tokens_total', 'cell')} / "
                f"{_rate('spec_decode_num_drafts_total', 'cell')}",
                "cell {{cell}}",
            ),
            "short",
            "Tokens per proposal, the target's own included.",
        ),
        Panel(
            "Acceptance by position",
            _one(
                f"{_rate('spec_decode_num_accepted_tokens_per_pos_total', 'position')} / "
                f"on () group_left () sum(rate(@specdec_spec_decode_num_drafts_total[{_W}]))",
                "{{position}}",
            ),
            "percentunit",
        ),
        Panel(
            "Drafted and accepted",
            {
                "drafted": _rate("spec_decode_num_draft_tokens_total"),
                "accepted": _rate("spec_decode_num_accepted_tokens_total"),
            },
            "short",
            "Tokens per second.",
        ),
        Panel("Rounds by K", _one(_rate("draft_rounds_total", "k"), "K = {{k}}"), "ops"),
        Panel(
            "Acceptance rate by request",
            _quantiles("request_acceptance_rate", 0.1, 0.5, 0.9),
            "percentunit",
        ),
        Panel(
            "Acceptance length by request",
            _quantiles("request_acceptance_length", 0.1, 0.5, 0.9),
        ),
        Panel(
            "What the K policy believes",
            _one("avg by (figure) (@specdec_k_policy)", "{{figure}}"),
        ),
        Panel(
            "Wasted draft tokens by API key",
            _one(_rate("client_wasted_draft_tokens_total", "client"), "{{client}}"),
        ),
        Panel(
            "Audited",
            {
                "audited, {{numerics}}": _rate("audited_requests_total", "numerics"),
                "skipped": _rate("audits_skipped_total"),
            },
            "reqps",
        ),
        Panel(
            "Diverged",
            _one("sum by (numerics) (@specdec_diverged_requests_total)", "{{numerics}}"),
            "short",
            "In exact numerics anything but 0 is a fault.",
        ),
        Panel("Audits that wait", _one("sum(@specdec_audits_pending)")),
    ),
)

POOL = Board(
    name="pool",
    title="specdec / pool",
    variables=_CELLS,
    panels=(
        Panel("Groups", _one(_rate("groups_total", "cell"), "cell {{cell}}"), "ops"),
        Panel("Rows of a group", _one(mean("group_size", "cell", _W), "cell {{cell}}")),
        Panel("Rows of a group, spread", _quantiles("group_size", 0.1, 0.5, 0.9)),
        Panel(
            "Shares of groups",
            {
                "of one length": f"{_rate('equal_length_groups_total')} / {_rate('groups_total')}",
                "split": f"{_rate('split_groups_total')} / {_rate('groups_total')}",
            },
            "percentunit",
        ),
        Panel("Rounds of sequences", _one(_rate("sequence_rounds_total", "cell"), "cell {{cell}}")),
        Panel(
            "Longest wait for a group so far",
            _one("max by (cell) (@specdec_group_wait_max_seconds)", "cell {{cell}}"),
            "s",
        ),
        Panel(
            "Pass",
            {
                f"{{{{role}}}} P{100 * share:g}": quantile(
                    share, "round_stage_seconds", "role", _W, 'stage=~"verify|draft"'
                )
                for share in (0.5, 0.99)
            },
            "s",
        ),
        Panel(
            "Added to a pass, P99",
            _one(
                quantile(
                    0.99,
                    "round_stage_seconds",
                    "role, stage",
                    _W,
                    'stage=~"schedule|wire|replica|added"',
                ),
                "{{role}} {{stage}}",
            ),
            "s",
        ),
        Panel(
            "What a piece of an answer takes of its ingress",
            _one(mean("answer_stage_seconds", "stage", _W), "{{stage}}"),
            "s",
        ),
        Panel("Leases answered", _one(_rate("leases_answered_total", "role"), "{{role}}"), "ops"),
        Panel(
            "What went wrong",
            {
                "KV misses": _rate("kv_misses_total"),
                "late answers": _rate("stale_results_total"),
                "fenced": _rate("fenced_replicas_total"),
            },
            "ops",
        ),
        Panel(
            "Age of the coordinator",
            _one(
                "time() - max by (cell) (@specdec_coordinator_start_time_seconds)",
                "cell {{cell}}",
            ),
            "s",
        ),
    ),
)


def _of_replica(sample: str) -> dict[str, str]:
    return _one(f"max by (role, replica_id) (@specdec_replica_{sample})", "{{role}} {{replica_id}}")


REPLICAS = Board(
    name="replicas",
    title="specdec / replicas",
    variables=_REPLICAS,
    panels=(
        Panel(
            "Busy",
            _one(
                _rate("replica_busy_seconds_total", "role, replica_id"), "{{role}} {{replica_id}}"
            ),
            "percentunit",
            "Share of the time in passes.",
        ),
        Panel(
            "Rows",
            _one(_rate("replica_rows_total", "role, replica_id"), "{{role}} {{replica_id}}"),
            "short",
            "Per second.",
        ),
        Panel("Sequences placed there", _of_replica("sequences")),
        Panel("Sequences with KV there", _of_replica("resident_sequences")),
        Panel(
            "KV in use",
            _one(
                "1 - max by (role, replica_id) (@specdec_replica_kv_blocks_free) / "
                "max by (role, replica_id) (@specdec_replica_kv_blocks)",
                "{{role}} {{replica_id}}",
            ),
            "percentunit",
        ),
        Panel("Fenced", _of_replica("is_fenced")),
        Panel("Draining", _of_replica("is_draining")),
    ),
)

BOARDS = (SERVICE, SPECULATION, POOL, REPLICAS)
