"""Dashboard of groups, of leases, and of the time that the stages of a round take."""

from __future__ import annotations

from k8s.monitoring.generate.boards.queries import CELLS, WINDOW, one, quantiles, rate
from k8s.monitoring.generate.grafana import Board, Panel
from k8s.monitoring.generate.promql import mean, quantile

POOL = Board(
    name="pool",
    title="specdec / pool",
    variables=CELLS,
    panels=(
        Panel("Groups", one(rate("groups_total", "cell"), "cell {{cell}}"), "ops"),
        Panel("Rows of a group", one(mean("group_size", "cell", WINDOW), "cell {{cell}}")),
        Panel("Rows of a group, spread", quantiles("group_size", 0.1, 0.5, 0.9)),
        Panel(
            "Shares of groups",
            {
                "of one length": f"{rate('equal_length_groups_total')} / {rate('groups_total')}",
                "split": f"{rate('split_groups_total')} / {rate('groups_total')}",
            },
            "percentunit",
        ),
        Panel("Rounds of sequences", one(rate("sequence_rounds_total", "cell"), "cell {{cell}}")),
        Panel(
            "Longest wait for a group so far",
            one("max by (cell) (@specdec_group_wait_max_seconds)", "cell {{cell}}"),
            "s",
        ),
        Panel(
            "Pass",
            {
                f"{{{{role}}}} P{100 * share:g}": quantile(
                    share, "round_stage_seconds", "role", WINDOW, 'stage=~"verify|draft"'
                )
                for share in (0.5, 0.99)
            },
            "s",
        ),
        Panel(
            "Time added to a pass, P99",
            one(
                quantile(
                    0.99,
                    "round_stage_seconds",
                    "role, stage",
                    WINDOW,
                    'stage=~"schedule|wire|replica|added"',
                ),
                "{{role}} {{stage}}",
            ),
            "s",
        ),
        Panel(
            "Ingress time per output chunk",
            one(mean("answer_stage_seconds", "stage", WINDOW), "{{stage}}"),
            "s",
        ),
        Panel(
            "Leases",
            {
                "{{role}}, granted": rate("leases_granted_total", "role"),
                "{{role}}, answered": rate("leases_answered_total", "role"),
            },
            "ops",
        ),
        Panel(
            "Leases that expired",
            one(rate("leases_expired_total", "role"), "{{role}}"),
            "ops",
            "Leases that were not answered in time, or came after such a lease.",
        ),
        Panel(
            "Faults",
            {
                "KV misses": rate("kv_misses_total"),
                "late answers": rate("stale_results_total"),
                "fenced": rate("fenced_replicas_total"),
            },
            "ops",
        ),
        Panel(
            "Age of the coordinator",
            one(
                "time() - max by (cell) (@specdec_coordinator_start_time_seconds)",
                "cell {{cell}}",
            ),
            "s",
        ),
    ),
)
