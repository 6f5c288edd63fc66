"""docs/paper.md: every table, from the JSON files alone, so that the text cannot leave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.paper.published import NOT_RUN, PAPER
from benchmarks.paper.records import Row, Run, load_runs
from benchmarks.paper.views import NOTHING, VIEWS, View, by_line

DOCUMENT = Path("docs/paper.md")

_HEAD = """# The paper's tables, measured here

"Batch Speculative Decoding Done Right" (Zhang et al., arXiv:2510.22876 v3) defines EQSPEC and
EXSPEC on a left-padded cache. Here they are `eqspec` and `exspec-padded`; `exspec` is EXSPEC's
pool, window and grouping over a cache in which nothing is ever realigned
([algorithm](algorithm.md)). All decoding is greedy, as the paper's.

This page is written by `python -m benchmarks.paper report` from the JSON files in
`benchmarks/results/paper`; the commands that measure are `python -m benchmarks.paper
equivalence|overhead|throughput|grouping|window|online` (`--help` has examples). A figure of the
paper that is not known here is a dash. `DRAFT` of a pair: `ngram` is prompt lookup, `self-N` the
target without N of its layers, `recorded-P` real passes of a smaller model whose proposals come
from the recorded plain answer, each token right with probability P. Targets called `random-*`
have random weights in the shape of the paper's model. Verification is always real.

Cells of one line were decoded in turns, so their ratios can be compared; absolute times are those
of the machine named, which may have been busy (its load average is given).
"""


def write_document(results: Path, document: Path) -> None:
    document.write_text(render({table: load_runs(results, table) for table in VIEWS}))


def render(runs: Mapping[str, Sequence[Run]]) -> str:
    """The whole page."""
    parts = [_HEAD]
    for number, (table, view) in enumerate(VIEWS.items(), start=1):
        parts.append(f"## {number}. {view.title}\n\n{PAPER[table]}\n\n{view.legend}\n")
        parts += [markdown_of(table, run) for run in runs[table]]
        if not runs[table]:
            parts.append(f"Not measured yet: `python -m benchmarks.paper {table}`.\n")
    parts.append(f"## Not run, and why\n\n{NOT_RUN}\n")
    return "\n".join(parts)


def markdown_of(table: str, run: Run) -> str:
    """One run of one table: where it was made, the comparison, the details."""
    view = VIEWS[table]
    parts = [f"### {run.name}\n", _origin(run), _table(view, run.rows)]
    measured = [row for row in run.rows if "not_run" not in row]
    if view.details and measured:
        headings = [heading for heading, _ in view.details]
        lines = [[say(row) for _, say in view.details] for row in measured]
        parts.append(_grid(headings, lines))
    return "\n".join(parts)


def _origin(run: Run) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in run.settings.items())
    machine = ", ".join(
        str(value) if name == "device" else f"{name.replace('_', ' ')} {value}"
        for name, value in run.machine.items()
    )
    parts = [f"commit {run.commit}", machine, settings]
    return "; ".join(part for part in parts if part) + "\n"


def _table(view: View, rows: Sequence[Row]) -> str:
    headings = [heading for heading, _ in view.keys]
    ours = [f"`{algorithm}`" for algorithm in view.algorithms]
    lines = [
        [
            *map(str, line),
            view.paper(next(iter(row_of.values()))),
            *(_cell(view, row_of.get(algorithm)) for algorithm in view.algorithms),
            "; ".join(_reasons(view, row_of)) or NOTHING,
        ]
        for line, row_of in by_line(view, rows).items()
    ]
    return _grid([*headings, "paper", *ours, "not run, and why"], lines)


def _cell(view: View, row: Row | None) -> str:
    return NOTHING if row is None or "not_run" in row else view.cell(row)


def _reasons(view: View, row_of: Mapping[str, Row]) -> Iterator[str]:
    """Each reason once, behind the algorithms that it concerns."""
    never = dict(view.missing)
    concerned: dict[str, list[str]] = {}
    for algorithm in view.algorithms:
        row = row_of.get(algorithm, {"not_run": never.get(algorithm, "not asked for")})
        if "not_run" in row:
            concerned.setdefault(row["not_run"], []).append(algorithm)
    for reason, algorithms in concerned.items():
        everyone = len(algorithms) == len(view.algorithms)
        yield f"{'all' if everyone else ', '.join(algorithms)}: {reason}"


def _grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rule = ["---"] * len(headings)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, rule, *lines))
