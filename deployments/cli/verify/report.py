"""Report of an audit: a table on the terminal, and JSON with every difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from deployments.cli.verify.audit import CellResult, Judged, batch_shape_of
from deployments.cli.verify.gap import BatchShape

MIN_WIDTH = 110
"""Minimum columns of text. The tables stay whole in a pipe and are wrapped by a narrow terminal."""
MAX_LISTED = 20
"""Maximum number of printed differences. The JSON has all."""


def cell_record(result: CellResult) -> dict[str, Any]:
    """Return one cell as plain data."""
    cell, stats = result.cell, result.stats
    return {
        "name": cell.name,
        "algorithm": cell.algorithm,
        "method": str(cell.point.method),
        "num_draft_tokens": cell.point.num_draft_tokens,
        "batch_size": cell.point.batch_size,
        "temperature": cell.point.temperature,
        "numerics": str(result.numerics),
        "prompts": list(result.prompts),
        "num_requests": len(result.prompts),
        "num_equal": result.num_equal,
        "differences": [difference_record(item) for item in result.judged],
        "logit_change": result.logit_change,
        "logprobs": None if result.logprobs is None else asdict(result.logprobs),
        "num_drafted": stats.num_drafted,
        "num_accepted": stats.num_accepted,
        "num_proposed_rounds": stats.num_proposed_rounds,
        "mean_acceptance_length": stats.mean_acceptance_length,
        "num_passes": stats.num_rounds,
        "num_tokens": result.num_tokens,
        "seconds": result.seconds,
        "seconds_by_stage": stats.seconds,
        "tokens_per_second": result.tokens_per_second,
        "failures": result.failures,
    }


def difference_record(item: Judged) -> dict[str, Any]:
    gap = item.gap
    return {
        **asdict(item.difference),
        "top_two_gap": gap.top_two,
        "chosen_gap": gap.chosen,
        "is_rounding": gap.is_rounding,
    }


def acceptance_ratio(results: Sequence[CellResult], others: Sequence[CellResult]) -> float | None:
    """Return the mean acceptance length of `results` divided by that of `others`. None without
    drafts."""
    ours, theirs = pooled_acceptance_length(results), pooled_acceptance_length(others)
    return ours / theirs if ours and theirs else None


def pooled_acceptance_length(results: Sequence[CellResult]) -> float:
    """Return the tokens committed per sequence and proposal, over the rounds of all cells."""
    rounds = sum(result.stats.num_proposed_rounds for result in results)
    accepted = sum(result.stats.num_accepted for result in results)
    return 1.0 + accepted / rounds if rounds else 0.0


def wide_console() -> Console:
    return Console(width=max(Console().width, MIN_WIDTH))


def print_cells(
    console: Console, results: Sequence[CellResult], fast: Sequence[CellResult] = ()
) -> None:
    """Print a row per cell. If fast numerics ran too, its figures are in the same row."""
    table = _table("Cells")
    for name in ("K", "B", "T", *_FIGURES, *(f"fast {name}" for name in _FAST_FIGURES if fast)):
        table.add_column(name, justify="right")
    beside = {result.cell: _figures(result) for result in fast}
    for result in results:
        figures = _figures(result)
        others = beside.get(result.cell, {})
        style = "red" if result.failures else None
        row = [*_place(result), *figures.values(), *(others[n] for n in _FAST_FIGURES if others)]
        table.add_row(*row, style=style)
    console.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.pad_edge = False
    for name in columns or ("algorithm", "draft"):
        table.add_column(name, no_wrap=True)
    return table


_FIGURES = ("equal", "%", "drafted", "accepted", "length", "tok/s")
_FAST_FIGURES = ("equal", "length", "tok/s")


def _place(result: CellResult) -> tuple[str, str, str, str, str]:
    method, num_draft_tokens, batch_size, temperature = result.cell.point
    draft, k = (method, str(num_draft_tokens)) if result.cell.is_speculative else ("-", "-")
    return (result.cell.algorithm, draft, k, str(batch_size), f"{temperature:g}")


def _figures(result: CellResult) -> dict[str, str]:
    stats, total = result.stats, len(result.prompts)
    values = (
        f"{result.num_equal}/{total}",
        f"{_percent(result.num_equal, total):.1f}",
        str(stats.num_drafted),
        str(stats.num_accepted),
        f"{stats.mean_acceptance_length:.2f}" if stats.num_proposed_rounds else "-",
        f"{result.tokens_per_second:.1f}",
    )
    return dict(zip(_FIGURES, values, strict=True))


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole


def print_summary(
    console: Console, results: Sequence[CellResult], fast: Sequence[CellResult] = ()
) -> None:
    """Print totals by algorithm and draft, over all their cells."""
    table = _table("Together")
    columns = ["cells", "equal", "%", "length"]
    for name in (*columns, "fast equal", "fast length", "ratio") if fast else columns:
        table.add_column(name, justify="right")
    for key, members in _grouped(results).items():
        others = _grouped(fast).get(key, [])
        table.add_row(*key, *_together(members), *(_beside(members, others) if fast else ()))
    console.print(table)


def _grouped(results: Sequence[CellResult]) -> dict[tuple[str, str], list[CellResult]]:
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for result in results:
        groups.setdefault(_place(result)[:2], []).append(result)
    return groups


def _together(members: Sequence[CellResult]) -> tuple[str, ...]:
    num_equal = sum(result.num_equal for result in members)
    total = sum(len(result.prompts) for result in members)
    length = pooled_acceptance_length(members)
    return (
        str(len(members)),
        f"{num_equal}/{total}",
        f"{_percent(num_equal, total):.1f}",
        f"{length:.3f}" if length else "-",
    )


def _beside(members: Sequence[CellResult], fast: Sequence[CellResult]) -> tuple[str, ...]:
    _, equal, _, length = _together(fast)
    ratio = acceptance_ratio(members, fast)
    return (equal, length, "-" if ratio is None else f"{ratio:.3f}")


def print_differences(console: Console, results: Sequence[CellResult]) -> None:
    """Print the first differences, at most MAX_LISTED, and the measured effect of rounding."""
    differences = [(result, item) for result in results for item in result.judged]
    if not differences:
        return
    table = _table("First differences", "cell")
    for name in ("prompt", "place", "expected", "got", "top-two gap", "gap of both", "rounding"):
        table.add_column(name, justify="right")
    for result, item in differences[:MAX_LISTED]:
        difference, gap = item
        table.add_row(
            result.cell.name,
            str(difference.prompt),
            str(difference.position),
            _id_or_end(difference.expected, difference.reasons[0]),
            _id_or_end(difference.got, difference.reasons[1]),
            f"{gap.top_two:.3g}",
            "-" if gap.chosen is None else f"{gap.chosen:.3g}",
            "yes" if gap.is_rounding else "no",
        )
    console.print(table)
    if len(differences) > MAX_LISTED:
        console.print(f"... and {len(differences) - MAX_LISTED} more: see --json")
    for batch_shape, change in _logit_changes(results).items():
        cache = "padded" if batch_shape.is_padded else "in place"
        console.print(
            f"B={batch_shape.batch_size} K={batch_shape.num_draft_tokens} {cache}: other rows "
            f"change a logit by up to {change:.3g}, so a gap up to {2 * change:.3g} is "
            "rounding",
            soft_wrap=True,
        )


def _id_or_end(token_id: int | None, reason: str | None) -> str:
    return f"end ({reason})" if token_id is None else str(token_id)


def _logit_changes(results: Sequence[CellResult]) -> dict[BatchShape, float]:
    return {
        batch_shape_of(result.cell): result.logit_change
        for result in results
        if result.logit_change is not None
    }


def print_failures(console: Console, results: Sequence[CellResult]) -> None:
    for result in results:
        for failure in result.failures:
            place = f"{result.cell.name} ({result.numerics})"
            console.print(f"{place}: {failure}", style="red", soft_wrap=True)
