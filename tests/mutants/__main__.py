"""`python -m tests.mutants`: run the seeded defects, show a table, fail when one survives."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.runner import Outcome, Verdict, run_mutants

_COLOURS = {
    Outcome.KILLED: "green",
    Outcome.SURVIVED: "red",
    Outcome.STALE: "yellow",
    Outcome.BROKEN: "yellow",
}


def main() -> int:
    arguments = _parse()
    mutants = _select(arguments.only)
    console = Console()
    if arguments.list:
        console.print(_list_table(mutants))
        return 0
    verdicts = _run(mutants, arguments.jobs, console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([_as_json(v) for v in verdicts], indent=2) + "\n")
    console.print(_verdict_table(verdicts))
    counts = Counter(verdict.outcome for verdict in verdicts)
    console.print(", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome))
    return 0 if counts[Outcome.KILLED] == len(verdicts) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="run the mutants whose name or path contains NAME; may be repeated",
    )
    parser.add_argument("--list", action="store_true", help="show the catalogue and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tested at the same time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {arguments.jobs}")
    return arguments


def _select(wanted: Sequence[str] | None) -> list[Mutant]:
    if wanted is None:
        return list(MUTANTS)
    found = [m for m in MUTANTS if any(part in m.name or part in m.path for part in wanted)]
    if not found:
        sys.exit(f"no mutant's name or path contains {' or '.join(wanted)}; see --list")
    return found


def _run(mutants: Sequence[Mutant], num_jobs: int, console: Console) -> list[Verdict]:
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    verdicts: list[Verdict] = []
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(mutants))
        for verdict in run_mutants(mutants, num_jobs):
            verdicts.append(verdict)
            progress.update(task, advance=1, description=verdict.mutant.name)
            if verdict.outcome is not Outcome.KILLED:
                progress.print(
                    f"{verdict.outcome} {verdict.mutant.name}: {verdict.detail}", markup=False
                )
    return verdicts


def _verdict_table(verdicts: Sequence[Verdict]) -> Table:
    table = Table("mutant", "outcome", "breaks", "how it shows")
    for verdict in verdicts:
        colour = _COLOURS[verdict.outcome]
        table.add_row(
            verdict.mutant.name,
            f"[{colour}]{verdict.outcome}[/]",
            verdict.mutant.breaks,
            _plain(verdict.detail),
        )
    return table


def _list_table(mutants: Sequence[Mutant]) -> Table:
    table = Table("mutant", "file", "breaks", "killed by")
    for mutant in mutants:
        table.add_row(mutant.name, mutant.path, mutant.breaks, _plain("\n".join(mutant.tests)))
    return table


def _plain(text: str) -> str:
    """Without anything that rich would take for its markup."""
    return text[:200].replace("[", r"\[")


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "name": verdict.mutant.name,
        "path": verdict.mutant.path,
        "breaks": verdict.mutant.breaks,
        "killed_by": list(verdict.mutant.tests),
        "outcome": verdict.outcome,
        "detail": verdict.detail,
    }


if __name__ == "__main__":
    sys.exit(main())
