"""The report as Markdown: goals, steps and every figure. It needs no package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu_report.goals import Judged, Verdict
from benchmarks.gpu_report.results import Result
from benchmarks.gpu_report.steps import STEPS


def page(
    results: Mapping[str, Result],
    judged: Sequence[Judged],
    environment: Mapping[str, str],
    command: str,
    *,
    is_rehearsal: bool,
) -> str:
    """Return the whole page. `environment` and `command` say where its figures come from."""
    on = "rehearsed on a CPU" if is_rehearsal else environment["gpu"]
    goals = [
        (str(one.verdict), one.goal.what, one.goal.bound, one.shown, one.note) for one in judged
    ]
    parts = [
        f"# specdec: GPU report, {on}",
        summary(judged, is_rehearsal=is_rehearsal),
        "## Goals",
        _table(("verdict", "goal", "required", "measured", "note"), goals),
        "## Steps",
        _table(("step", "what", "status", "seconds", "limit", "reason"), _steps(results)),
        *(part for step in STEPS for part in _figures(results.get(step.name), step.what)),
        "## Measured on",
        _table(("what", "value"), [*environment.items(), ("command", command)]),
    ]
    return "\n\n".join(parts) + "\n"


def summary(judged: Sequence[Judged], *, is_rehearsal: bool) -> str:
    """Return the number of goals by verdict as one line."""
    counts = {verdict: sum(item.verdict is verdict for item in judged) for verdict in Verdict}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    text = f"{len(judged)} goals: {told}."
    if is_rehearsal:
        text += " Tiny shapes on a CPU: this shows that the report runs. Its speeds mean nothing."
    return text


def _steps(results: Mapping[str, Result]) -> Iterator[Sequence[object]]:
    for step in STEPS:
        known = results.get(step.name)
        found = (known.status, f"{known.seconds:.1f}") if known else ("not run", "")
        yield step.name, step.what, *found, f"{step.limit_s:.0f}", known.reason if known else ""


def _figures(result: Result | None, what: str) -> Iterator[str]:
    """Yield a step's heading, its facts and its tables. Nothing if it has not run."""
    if result is None:
        return
    yield f"## {result.step}: {what}"
    if result.facts:
        yield _table(("fact", "value"), result.facts.items())
    for name, rows in result.tables.items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        header = [column.replace("_", " ") for column in columns]
        cells = ([row.get(column) for column in columns] for row in rows)
        yield f"**{name}**\n\n{_table(header, cells)}"
    if not (result.facts or result.tables):
        yield "Nothing was found."


def _table(header: Sequence[object], rows: Any) -> str:
    return "\n".join([_row(header), "|---" * len(header) + "|", *map(_row, rows)])


def _row(cells: Sequence[object]) -> str:
    told = (_shown(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(told)} |"


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
