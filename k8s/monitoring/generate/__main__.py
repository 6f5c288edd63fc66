"""Write dashboards, alert rules and docs/metrics.md.

python -m k8s.monitoring.generate [ADDRESS OF THE RUNBOOK]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from k8s.monitoring.generate.boards.pool import POOL
from k8s.monitoring.generate.boards.replicas import REPLICAS
from k8s.monitoring.generate.boards.service import SERVICE
from k8s.monitoring.generate.boards.speculation import SPECULATION
from k8s.monitoring.generate.grafana import board_json
from k8s.monitoring.generate.listing import listing
from k8s.monitoring.generate.rules import prometheus_rule, rules_file

RUNBOOK = "docs/runbook.md"
"""Address of the runbook to which alerts link: in this repository, or where it is published."""
_BOARDS = (SERVICE, SPECULATION, POOL, REPLICAS)
_FOLDER = "k8s/monitoring"


def files(runbook: str = RUNBOOK) -> Iterator[tuple[str, str]]:
    """Yield each file's path from the root, and its text."""
    for board in _BOARDS:
        yield f"{_FOLDER}/dashboards/{board.name}.json", board_json(board)
    yield f"{_FOLDER}/rules.yaml", rules_file(runbook)
    yield f"{_FOLDER}/prometheus_rule.yaml", prometheus_rule(runbook)
    yield "docs/metrics.md", listing()


def main(arguments: Sequence[str]) -> None:
    for path, text in files(*arguments):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
