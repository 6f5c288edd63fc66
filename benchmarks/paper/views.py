"""How each table reads: its columns, what the paper says in them, and how a cell is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.paper.algorithms import COMPARED, PLAIN
from benchmarks.paper.overhead import STAGES
from benchmarks.paper.published import (
    ALIGNMENT_SHARE,
    EXACT_MATCH,
    GROUPING_EQUAL,
    GROUPING_RANDOM,
    ONLINE_P99,
)
from benchmarks.paper.records import Row

NOTHING = "-"
Say = Callable[[Row], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One table of the document."""

    title: str
    legend: str
    """What a cell holds."""
    keys: tuple[tuple[str, str], ...]
    """(heading, coordinate) of the columns that say which line it is."""
    paper: Say
    """The paper's figure for a line with these coordinates."""
    cell: Say
    algorithms: tuple[str, ...] = COMPARED
    missing: tuple[tuple[str, str], ...] = ()
    """(algorithm, why it never stands in this table)."""
    details: tuple[tuple[str, Say], ...] = ()
    """(heading, figure) of a second table with a line for every row."""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _equivalence(row: Row) -> str:
    equal = f"{row['num_equal']}/{row['num_requests']}"
    length = f"{row['mean_acceptance_length']:.2f}"
    return f"{equal}, {_percent(row['partial_match'])}, {length}"


def _overhead(row: Row) -> str:
    megabytes = row["aligned_bytes"] / row["num_rounds"] / 1e6
    low, high = row["alignment_share_range"]
    spread = f"{100 * low:.1f} to {100 * high:.1f}"
    return f"{_percent(row['alignment_share'])} ({spread}); {megabytes:.2f} MB"


def _throughput(row: Row) -> str:
    speed = f"{row['tokens_per_second']:.1f}"
    return f"{row['over_plain']:.2f} ({speed}; {row['num_rounds']})"


def _grouping(row: Row) -> str:
    counts = f"{row['num_equal_length_groups']} of {row['num_groups']}"
    return f"{_percent(row['equal_length_share'])} ({counts})"


def _window(row: Row) -> str:
    share = _percent(row["equal_length_share"])
    return f"{row['num_rounds']}; {share}; {row['over_narrowest']:.2f}"


def _online(row: Row) -> str:
    latencies = " / ".join(f"{row['latency_s'][q]:.2f}" for q in ("p50", "p90", "p99"))
    return f"{latencies}; {row['longest_silence_s']:.2f}"


def _first_token(row: Row) -> str:
    return " / ".join(f"{row['first_token_s'][q]:.2f}" for q in ("p50", "p90", "p99"))


def _paper_grouping(row: Row) -> str:
    by_batch = GROUPING_RANDOM if row["lengths"] == "random" else {}
    known = by_batch.get(row["batch_size"], NOTHING)
    return GROUPING_EQUAL if row["lengths"] == "equal" else known


def _paper_online(row: Row) -> str:
    known = ONLINE_P99.get(row["batch_size"], {})
    named = ", ".join(f"{algorithm} {p99}" for algorithm, p99 in known.items())
    return f"P99: {named}" if named else NOTHING


def _stage(stage: str) -> Say:
    return lambda row: f"{row['ms_per_round'][stage]:.2f}"


def _batch(row: Row) -> str:
    return str(row["batch_size"])


def _algorithm(row: Row) -> str:
    return f"`{row['algorithm']}`"


_STATIC = (("eqspec", "a static batch has no window to group from"),)

VIEWS = {
    "equivalence": View(
        title="Output equivalence",
        legend="Cells: answers equal to plain decoding at batch 1, mean partial match, mean "
        "acceptance length.",
        keys=(("dtype", "dtype"), ("numerics", "numerics"), ("B", "batch_size")),
        paper=lambda row: EXACT_MATCH,
        cell=_equivalence,
    ),
    "overhead": View(
        title="Anatomy of the overhead",
        legend="Cells: share of alignment in the time of all stages (median and range of the "
        "repeats), megabytes that realignment moves in a round. Stage `stack` puts rows of equal "
        "length side by side, `view` reads rows through their start offsets (exact numerics); the "
        "paper has neither name. The second table counts milliseconds and megabytes per round.",
        keys=(("B", "batch_size"),),
        paper=lambda row: ALIGNMENT_SHARE.get(row["batch_size"], NOTHING),
        cell=_overhead,
        details=(
            ("B", _batch),
            ("algorithm", _algorithm),
            *((f"{stage} ms", _stage(stage)) for stage in STAGES),
            ("stacked MB", lambda row: f"{row['stacked_bytes'] / row['num_rounds'] / 1e6:.2f}"),
            ("rounds", lambda row: str(row["num_rounds"])),
            ("acceptance length", lambda row: f"{row['mean_acceptance_length']:.2f}"),
        ),
    ),
    "throughput": View(
        title="Throughput",
        legend="Cells: speed over plain decoding at the same batch size (median of ratios within "
        "a turn), in brackets tokens a second and target passes.",
        keys=(("B", "batch_size"),),
        paper=lambda row: NOTHING,
        cell=_throughput,
        algorithms=(PLAIN, *COMPARED),
    ),
    "grouping": View(
        title="Grouping rate",
        legend="Cells: target passes whose rows have one length, of all target passes (prefill "
        "and the emptying of the pool at the end included).",
        keys=(("prompts", "lengths"), ("p", "probability"), ("B", "batch_size")),
        paper=_paper_grouping,
        cell=_grouping,
        missing=_STATIC,
    ),
    "window": View(
        title="Window",
        legend="Cells: target passes; those of equal lengths; speed over the narrowest window.",
        keys=(("B", "batch_size"), ("W", "window")),
        paper=lambda row: NOTHING,
        cell=_window,
        missing=_STATIC,
    ),
    "online": View(
        title="Online latency",
        legend="Cells: latency in virtual seconds, P50 / P90 / P99; the longest silence that any "
        "request saw.",
        keys=(("B", "batch_size"),),
        paper=_paper_online,
        cell=_online,
        details=(
            ("B", _batch),
            ("algorithm", _algorithm),
            ("first token P50 / P90 / P99 s", _first_token),
            ("requests a second", lambda row: f"{row['requests_per_second']:.3f}"),
            ("load", lambda row: f"{row['load']:g}"),
            ("timer", lambda row: str(row["timer"])),
        ),
    ),
}


def key_of(view: View, row: Row) -> tuple[object, ...]:
    return tuple(row[coordinate] for _, coordinate in view.keys)


def by_line(view: View, rows: Sequence[Row]) -> dict[tuple[object, ...], dict[str, Row]]:
    """Line -> algorithm -> row, in order of first appearance."""
    lines: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault(key_of(view, row), {})[row["algorithm"]] = row
    return lines
