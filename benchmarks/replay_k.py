"""A trace of the K controller, decided again: the same decisions, and what they were.

python -m benchmarks.no_slowdown --batch-sizes 8 --acceptances 0.5 --traces FOLDER
python -m benchmarks.replay_k FOLDER/batch_8_acceptance_0.5.jsonl
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO
from unittest import mock

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.k_trace import Record, TracedK, replay
from specdec_core.config import SchedulerConfig
from specdec_core.scheduler import scheduler as pool
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.k_policy import KPolicy
from specdec_core.speculation.policies import make_k_policy


@contextmanager
def traces_to(file: TextIO) -> Iterator[None]:
    """Controllers of pools that are made within it write their traces to `file`."""

    def make(config: SchedulerConfig) -> KPolicy:
        policy = make_k_policy(config)
        if not isinstance(policy, GoodputPolicy):
            return policy
        write({"event": "policy", "max_group_size": policy.max_group_size})
        return TracedK(policy, write)

    def write(record: Record) -> None:
        file.write(json.dumps(record) + "\n")

    with mock.patch.object(pool, "make_k_policy", make):
        yield


def main(trace: Annotated[Path, typer.Argument(help="JSON lines.")]) -> None:
    """Decide again what a trace says was decided. Exits 1 where anything comes out differently."""
    with trace.open() as lines:
        records = map(json.loads, lines)
        policy = GoodputPolicy(next(records)["max_group_size"])
        decisions = list(replay(records, policy))
    lengths = Counter(length for decision in decisions for length in decision.lengths)
    table = Table("K", "rows of groups", title="Drafted tokens checked")
    for k, count in sorted(lengths.items()):
        table.add_row(str(k), str(count))
    console = Console()
    console.print(table)
    console.print({name: round(value, 6) for name, value in policy.figures.items()})
    num_different = sum(not decision.is_same for decision in decisions)
    console.print(f"{len(decisions)} decisions, {num_different} of them different")
    raise typer.Exit(num_different > 0)


if __name__ == "__main__":
    typer.run(main)
