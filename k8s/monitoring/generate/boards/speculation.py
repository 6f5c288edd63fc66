"""Dashboard of the gain from drafting, and of differences from plain decoding."""

from __future__ import annotations

from k8s.monitoring.generate.boards.queries import CELLS, WINDOW, one, quantiles, rate
from k8s.monitoring.generate.grafana import Board, Panel

SPECULATION = Board(
    name="speculation",
    title="specdec / speculation",
    variables=CELLS,
    panels=(
        Panel(
            "Acceptance rate",
            one(
                f"{rate('spec_decode_num_accepted_tokens_total', 'cell')} / "
                f"{rate('spec_decode_num_draft_tokens_total', 'cell')}",
                "cell {{cell}}",
            ),
            "percentunit",
            "Accepted share of the drafted tokens.",
        ),
        Panel(
            "Mean acceptance length",
            one(
                f"1 + {rate('spec_decode_num_accepted_tokens_total', 'cell')} / "
                f"{rate('spec_decode_num_drafts_total', 'cell')}",
                "cell {{cell}}",
            ),
            "short",
            "Tokens per proposal, including the target's own.",
        ),
        Panel(
            "Acceptance by position",
            one(
                f"{rate('spec_decode_num_accepted_tokens_per_pos_total', 'position')} / "
                f"on () group_left () sum(rate(@specdec_spec_decode_num_drafts_total[{WINDOW}]))",
                "{{position}}",
            ),
            "percentunit",
        ),
        Panel(
            "Drafted and accepted",
            {
                "drafted": rate("spec_decode_num_draft_tokens_total"),
                "accepted": rate("spec_decode_num_accepted_tokens_total"),
            },
            "short",
            "Tokens per second.",
        ),
        Panel("Rounds by K", one(rate("draft_rounds_total", "k"), "K = {{k}}"), "ops"),
        Panel(
            "Cause of K",
            one(rate("k_decisions_total", "cause"), "{{cause}}"),
            "ops",
            "Rounds by the cause of their K.",
        ),
        Panel(
            "Acceptance rate by request",
            quantiles("request_acceptance_rate", 0.1, 0.5, 0.9),
            "percentunit",
        ),
        Panel(
            "Acceptance length by request",
            quantiles("request_acceptance_length", 0.1, 0.5, 0.9),
        ),
        Panel(
            "Estimates of the K policy",
            one("avg by (figure) (@specdec_k_policy)", "{{figure}}"),
        ),
        Panel(
            "Wasted draft tokens by API key",
            one(rate("client_wasted_draft_tokens_total", "client"), "{{client}}"),
        ),
        Panel(
            "Audited",
            {
                "audited, {{numerics}}": rate("audited_requests_total", "numerics"),
                "skipped": rate("audits_skipped_total"),
            },
            "reqps",
        ),
        Panel(
            "Diverged",
            {
                "audit, {{numerics}}": "sum by (numerics) (@specdec_diverged_requests_total)",
                "replay": "sum(@specdec_replay_divergences_total)",
            },
            "short",
            "With exact numerics, any value above 0 is a fault.",
        ),
        Panel("Pending audits", one("sum(@specdec_audits_pending)")),
    ),
)
