"""Dashboard of the single replicas."""

from __future__ import annotations

from k8s.monitoring.generate.boards.queries import CELLS, one, rate
from k8s.monitoring.generate.grafana import Board, Panel


def _of_replica(sample: str) -> dict[str, str]:
    return one(f"max by (role, replica_id) (@specdec_replica_{sample})", "{{role}} {{replica_id}}")


REPLICAS = Board(
    name="replicas",
    title="specdec / replicas",
    variables={**CELLS, "replica": ("specdec_replica_rows_total", "replica_id")},
    panels=(
        Panel(
            "Busy",
            one(rate("replica_busy_seconds_total", "role, replica_id"), "{{role}} {{replica_id}}"),
            "percentunit",
            "Share of the time in passes.",
        ),
        Panel(
            "Rows",
            one(rate("replica_rows_total", "role, replica_id"), "{{role}} {{replica_id}}"),
            "short",
            "Per second.",
        ),
        Panel("Sequences placed on the replica", _of_replica("sequences")),
        Panel("Sequences with KV on the replica", _of_replica("resident_sequences")),
        Panel(
            "KV in use",
            one(
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
