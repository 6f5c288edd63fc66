"""Dashboard of the service that clients get: load, latency, refusals."""

from __future__ import annotations

from k8s.monitoring.generate.boards.queries import CELLS, WINDOW, one, quantiles, rate
from k8s.monitoring.generate.grafana import Board, Panel
from k8s.monitoring.generate.promql import mean

SERVICE = Board(
    name="service",
    title="specdec / service",
    variables=CELLS,
    panels=(
        Panel(
            "Requests that ended",
            one(rate("request_success_total", "finished_reason"), "{{finished_reason}}"),
            "reqps",
        ),
        Panel(
            "Tokens",
            {
                "generated": rate("generation_tokens_total"),
                "prompts": rate("prompt_tokens_total"),
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
            quantiles("time_to_first_token_seconds", 0.5, 0.9, 0.99),
            "s",
        ),
        Panel(
            "Time between output chunks",
            quantiles("inter_token_latency_seconds", 0.5, 0.9, 0.99),
            "s",
        ),
        Panel(
            "Whole request",
            quantiles("e2e_request_latency_seconds", 0.5, 0.9, 0.99),
            "s",
        ),
        Panel(
            "Where a request's time goes",
            {
                part: mean(f"request_{part}_time_seconds", "", WINDOW)
                for part in ("queue", "prefill", "decode")
            },
            "s",
            "Means.",
        ),
        Panel(
            "Time per output token",
            quantiles("request_time_per_output_token_seconds", 0.5, 0.99),
            "s",
        ),
        Panel(
            "Waiting, by reason",
            one("sum by (reason) (@specdec_num_requests_waiting_by_reason)", "{{reason}}"),
        ),
        Panel(
            "KV in use",
            one("max by (cell) (@specdec_kv_cache_usage_perc)", "cell {{cell}}"),
            "percentunit",
        ),
        Panel(
            "Prompt tokens found in the prefix cache",
            one(f"{rate('prefix_cache_hits_total')} / {rate('prefix_cache_queries_total')}"),
            "percentunit",
        ),
        Panel("Preemptions", one(rate("num_preemptions_total")), "ops"),
        Panel(
            "Refused",
            one(rate("admission_rejections_total", "reason"), "{{reason}}"),
            "reqps",
        ),
        Panel("Failed", one(rate("failed_requests_total", "kind"), "{{kind}}"), "reqps"),
        Panel(
            "Tokens by API key",
            one(rate("client_generation_tokens_total", "client"), "{{client}}"),
            "short",
            "Per second.",
        ),
        Panel(
            "Prompt tokens by API key",
            one(rate("client_prompt_tokens_total", "client"), "{{client}}"),
            "short",
            "Per second.",
        ),
        Panel(
            "Prompt tokens found in the prefix cache, by API key",
            one(
                f"{rate('client_cached_prompt_tokens_total', 'client')} / "
                f"{rate('client_prompt_tokens_total', 'client')}",
                "{{client}}",
            ),
            "percentunit",
        ),
        Panel(
            "Running by API key",
            one("sum by (client) (@specdec_client_requests_running)", "{{client}}"),
        ),
        Panel(
            "Request duration, GenAI conventions",
            one(
                "histogram_quantile(0.99, sum by (le) "
                f"(rate(@gen_ai_server_request_duration_seconds_bucket[{WINDOW}])))",
                "P99",
            ),
            "s",
        ),
    ),
)
