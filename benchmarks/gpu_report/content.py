"""What the page says, before it is HTML or Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu_report.charts import LineChart, bars
from benchmarks.gpu_report.goals import GOALS, Judged, Verdict, judge
from benchmarks.gpu_report.results import Result
from benchmarks.gpu_report.steps import STEPS

_NO_RESULT = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(slots=True, kw_only=True)
class Section:
    title: str
    text: str = ""
    tables: list[Table] = field(default_factory=list)
    charts: list[str] = field(default_factory=list)
    """SVG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything on the page, in its order."""

    title: str
    summary: str
    verdicts: Sequence[Judged]
    sections: Sequence[Section]


def report(
    results: Mapping[str, Result],
    environment: Mapping[str, str],
    command: str,
    *,
    is_rehearsal: bool,
) -> Report:
    judged = judge(results, is_rehearsal=is_rehearsal)
    kind = "GPU report, rehearsed on a CPU" if is_rehearsal else "GPU report"
    gpu = "" if is_rehearsal else f": {environment['gpu']}"
    return Report(
        title=f"specdec: {kind}{gpu}",
        summary=_summary(judged, is_rehearsal),
        verdicts=judged,
        sections=[
            _charts(results),
            _steps(results),
            *(_details(results[step.name], step.what) for step in STEPS if step.name in results),
            _measured_on(environment, command),
        ],
    )


def goals_table(judged: Sequence[Judged]) -> Table:
    rows = [
        (str(item.verdict), item.goal.what, item.goal.bound, item.shown, item.note)
        for item in judged
    ]
    return Table(header=("verdict", "goal", "required", "measured", "note"), rows=rows)


def _summary(judged: Sequence[Judged], is_rehearsal: bool) -> str:
    counts = {verdict: sum(item.verdict is verdict for item in judged) for verdict in Verdict}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    text = f"{len(judged)} goals: {told}."
    if is_rehearsal:
        text += " Tiny shapes on a CPU: this shows that the report runs. Its speeds mean nothing."
    return text


def _charts(results: Mapping[str, Result]) -> Section:
    charts = [*_roofline_charts(results), *_speed_charts(results), *_kernel_charts(results)]
    text = "" if charts else "No step has left a figure to draw."
    return Section(title="Charts", text=text, charts=charts)


def _roofline_charts(results: Mapping[str, Result]) -> Iterator[str]:
    """Of each context: the share of the bound by rows."""
    rows = results["roofline"].rows("passes", mode="recorded") if "roofline" in results else []
    contexts = sorted({row["context"] for row in rows})
    for context in contexts:
        some = [row for row in rows if row["context"] == context]
        lines = {
            work: {row["rows"]: 100 * row["of_bound"] for row in some if row["work"] == work}
            for work in ("decode", "verify", "draft")
        }
        yield LineChart(
            title=f"Share of the bandwidth bound, {context} cached tokens a row",
            x_label="rows",
            lines=lines,
            goals={8: 70.0} if context == contexts[0] else {},
            suffix=" %",
        ).svg()


def _speed_charts(results: Mapping[str, Result]) -> Iterator[str]:
    if "speed" not in results:
        return
    fast = results["speed"].rows("decoding", numerics="fast")
    drafted = [row for row in fast if row["method"] == "exspec"]
    if not drafted:
        return
    acceptances = sorted({row["acceptance"] for row in drafted})
    by_acceptance = {
        f"acceptance {acceptance:g}": [row for row in drafted if row["acceptance"] == acceptance]
        for acceptance in acceptances
    }
    plain = [row for row in fast if row["method"] == "plain"]
    yield LineChart(
        title="exspec over plain decoding, fast numerics, K by goodput",
        x_label="rows",
        lines={name: _line(rows, "over_plain") for name, rows in by_acceptance.items()},
        goals=_speed_goals({row["rows"] for row in drafted}),
    ).svg()
    yield LineChart(
        title="Tokens per second, fast numerics",
        x_label="rows",
        lines={
            name: _line(rows, "tokens_per_s")
            for name, rows in {"plain": plain, **by_acceptance}.items()
        },
    ).svg()


def _speed_goals(sizes: set[int]) -> dict[int, float]:
    """Of the goals table, which says the number of rows in words alone."""
    found = {}
    for goal in GOALS:
        if goal.what.startswith("exspec over") and goal.at_least is not None:
            found[int(goal.what.split()[-2])] = goal.at_least
    return {rows: least for rows, least in found.items() if rows in sizes}


def _kernel_charts(results: Mapping[str, Result]) -> Iterator[str]:
    rows = results["kernels"].rows("kernels") if "kernels" in results else []
    for work in dict.fromkeys(row["work"] for row in rows):
        shares = [(row["kernel"], row["share"]) for row in rows if row["work"] == work][:8]
        yield bars(f"Kernels by time: {work}", shares)


def _line(rows: Sequence[Mapping[str, Any]], name: str) -> dict[int, float]:
    return {int(row["rows"]): float(row[name]) for row in rows}


def _steps(results: Mapping[str, Result]) -> Section:
    rows = []
    for step in STEPS:
        known = results.get(step.name)
        seconds = f"{known.seconds:.1f}" if known else ""
        status, reason = (str(known.status), known.reason) if known else (_NO_RESULT, "")
        rows.append((step.name, step.what, status, seconds, f"{step.limit_s:.0f}", reason))
    header = ("step", "what", "status", "seconds", "limit", "reason")
    return Section(title="Steps", tables=[Table(header=header, rows=rows)])


def _details(result: Result, what: str) -> Section:
    facts = [(name, shown(value)) for name, value in result.facts.items()]
    tables = [Table(header=("fact", "value"), rows=facts)] if facts else []
    tables += [_table(name, rows) for name, rows in result.tables.items()]
    text = "" if tables else "Nothing was found."
    return Section(title=f"{result.step}: {what}", text=text, tables=tables)


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    header = list(dict.fromkeys(column for row in rows for column in row))
    return Table(
        caption=name,
        header=[column.replace("_", " ") for column in header],
        rows=[[shown(row.get(column)) for column in header] for row in rows],
    )


def shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _measured_on(environment: Mapping[str, str], command: str) -> Section:
    rows = [*environment.items(), ("command", command)]
    return Section(
        title="Measured on", tables=[Table(header=("what", "value"), rows=[*map(tuple, rows)])]
    )
