"""Tables of the three loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from benchmarks.overload.burst import Burst
from benchmarks.overload.held import Held, ours
from benchmarks.overload.questions import Verdict, Way


def outcomes_table(bursts: Sequence[Burst]) -> Table:
    table = Table("burst", "way", *(verdict.value for verdict in Verdict), "wrong")
    for number, burst in enumerate(bursts, start=1):
        for way in Way:
            counts = (burst.found.counts.get((way, verdict), 0) for verdict in Verdict)
            table.add_row(str(number), way.value, *map(str, counts), "")
        totals = (burst.found.count(verdict) for verdict in Verdict)
        table.add_row("", "all", *map(str, totals), str(burst.found.num_wrong), end_section=True)
    return table


def memory_table(bursts: Sequence[Burst]) -> Table:
    table = Table("burst", "MiB (PSS)", "before", "peak", "after", "files", "threads")
    for number, burst in enumerate(bursts, start=1):
        for kind, held in burst.after.items():
            before = burst.before.get(kind, Held())
            table.add_row(str(number), kind, _mib(before), "", *_rest(held))
        total = (_mib(ours(burst.before)), _mib(burst.peak), *_rest(ours(burst.after)))
        table.add_row("", f"what serves: {100 * burst.growth:+.1f} %", *total, end_section=True)
    return table


def growth_table(per_hour: Mapping[str, Mapping[str, float]]) -> Table:
    """Growth per hour of what each kind of process holds."""
    columns = {name: None for row in per_hour.values() for name in row}
    table = Table("growth per hour", *columns)
    for kind, row in per_hour.items():
        table.add_row(kind, *(f"{row[name]:+.2f}" if name in row else "" for name in columns))
    return table


def _mib(held: Held) -> str:
    return f"{held.pss_mib:.0f}"


def _rest(held: Held) -> tuple[str, str, str]:
    return _mib(held), str(held.num_files), str(held.num_threads)
