"""Tables of a result: for the terminal, and as Markdown for a document."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.served_peers.figures import Cells, Ratio, rate
from benchmarks.served_peers.goals import Figure, acceptance
from benchmarks.served_peers.readings import Part, Record


class Sheet(NamedTuple):
    """A table without a form."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def sheets(found: dict[str, Any]) -> list[Sheet]:
    """Speed of every cell, what each engine takes, what speculation does to passes, acceptance."""
    cells = Cells(found["readings"])
    kinds = dict.fromkeys(prompts for prompts, _ in cells.shapes)
    speeds = [_speed_sheet(found, cells, prompts) for prompts in kinds]
    passes = _passes_sheets(found["readings"])
    return [*speeds, _engines_sheet(found, cells), *passes, _acceptance_sheet(acceptance(found))]


def _speed_sheet(found: dict[str, Any], cells: Cells, prompts: str) -> Sheet:
    tokens = found["settings"]["prompt_tokens"].get(prompts, 0)
    columns = (
        *("streams", "engine", "tokens/s", "TTFT p50", "TTFT p90", "gap p50", "gap p99"),
        *("CPU ms/token", "client's"),
    )
    rows = [
        _speed_row(streams, engine, own)
        for kind, streams in cells.shapes
        if kind == prompts
        for engine in cells.engines
        if (own := cells.of(engine, prompts, streams))
    ]
    title = f"{prompts} prompts ({tokens:.0f} tokens): medians over rounds; times in ms"
    return Sheet(title, columns, rows)


def _speed_row(streams: int, engine: str, own: Sequence[Record]) -> tuple[str, ...]:
    return (
        str(streams),
        engine,
        f"{median(map(rate, own)):.1f}",
        *(_middle_ms(own, "ttft_ms", name) for name in ("p50", "p90")),
        *(_middle_ms(own, "gap_ms", name) for name in ("p50", "p99")),
        f"{median(1000 * sum(each['cpu_s'].values()) / each['tokens'] for each in own):.2f}",
        f"{median(1000 * each['client_cpu_s'] / each['tokens'] for each in own):.2f}",
    )


def _middle_ms(own: Sequence[Record], field: str, name: str) -> str:
    values = [each[field][name] for each in own if name in each[field]]
    return f"{median(values):.0f}" if values else "-"


def _engines_sheet(found: dict[str, Any], cells: Cells) -> Sheet:
    columns = ("engine", "s to ready", "resident MiB", "CPU by process, share")
    rows = [_engine_row(engine, found) for engine in cells.engines]
    return Sheet("Start, memory and processes", columns, rows)


def _engine_row(engine: str, found: dict[str, Any]) -> tuple[str, ...]:
    ready = [start["ready_s"] for start in found["starts"] if start["engine"] == engine]
    own = [each for each in found["readings"] if each["engine"] == engine]
    used: dict[str, float] = {}
    for each in own:
        for kind, seconds in each["cpu_s"].items():
            used[kind] = used.get(kind, 0.0) + seconds
    total = sum(used.values()) or 1.0
    largest = sorted(used.items(), key=lambda item: -item[1])
    shares = [
        f"{kind} {seconds / total:.0%}" for kind, seconds in largest if seconds >= 0.01 * total
    ]
    return (
        engine,
        f"{median(ready):.1f}" if ready else "-",
        f"{max(each['resident_mib'] for each in own):.0f}",
        ", ".join(shares),
    )


def _passes_sheets(readings: Sequence[Record]) -> list[Sheet]:
    """Of paired turns whose server told of its passes; no sheet without any."""
    told: dict[tuple[str, float, int, str], list[Record]] = {}
    for each in readings:
        # Results from before 28 November 2026 do not tell them.
        if each["part"] == Part.PAIRS and each.get("passes"):
            shape = each["prompts"], each["temperature"], each["streams"], each["speculation"]
            told.setdefault(shape, []).append(each)
    columns = (
        *("prompts", "temperature", "streams", "speculation", "goes", "tokens a pass"),
        "ms a pass",
        *("ms besides", "drafted of 1,000", "accepted of 1,000"),
    )
    title = "Passes of paired turns: means; of 1,000 tokens of answers so many were drafted"
    rows = [_passes_row(*shape, told[shape]) for shape in sorted(told)]
    return [Sheet(title, columns, rows)] if rows else []


def _passes_row(
    prompts: str, temperature: float, streams: int, speculation: str, own: Sequence[Record]
) -> tuple[str, ...]:
    tokens = sum(each["tokens"] for each in own)
    total = {name: sum(each["passes"][name] for each in own) for name in own[0]["passes"]}
    return (
        prompts,
        f"{temperature:g}",
        str(streams),
        speculation,
        str(len(own)),
        f"{tokens / total['count']:.2f}",
        f"{1000 * total['pass_s'] / total['count']:.2f}",
        f"{1000 * total['between_s'] / total['count']:.2f}",
        f"{1000 * total['drafted'] / tokens:.1f}",
        f"{1000 * total['accepted'] / tokens:.1f}",
    )


def _acceptance_sheet(figures: Sequence[Figure]) -> Sheet:
    columns = ("figure", "median", "95 % interval", "turns", "goal", "met")
    rows = [
        (
            figure.what,
            f"{figure.ratio.middle:.3f}",
            _interval(figure.ratio),
            str(figure.ratio.num_pairs),
            figure.goal,
            {True: "yes", False: "NO", None: "-"}[figure.is_met],
        )
        for figure in figures
    ]
    return Sheet("Acceptance: ratios turn by turn", columns, rows)


def _interval(ratio: Ratio) -> str:
    return "-" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"


def table(sheet: Sheet) -> Table:
    shown = Table(*sheet.columns, title=sheet.title, pad_edge=False)
    for place, row in enumerate(sheet.rows):
        if place and row[0] != sheet.rows[place - 1][0] and sheet.columns[0] == "streams":
            shown.add_section()
        shown.add_row(*row)
    return shown


def markdown(found: dict[str, Any]) -> str:
    """All tables, with the conditions they hold under."""
    settings, machine = found["settings"], found["machine"]
    conditions = (
        f"Model {settings['site']['model']}, {settings['max_tokens']} tokens an answer, "
        f"{settings['rounds']} rounds, {machine['cpu']} ({machine['capability']}), "
        f"{machine['cores']} cores."
    )
    return "\n\n".join([conditions, *map(_markdown_table, sheets(found))]) + "\n"


def _markdown_table(sheet: Sheet) -> str:
    lines = [sheet.columns, ("---",) * len(sheet.columns), *sheet.rows]
    return f"{sheet.title}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)
