"""View of a running service: two statuses in, one renderable out. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deployments.cli.top import counts
from deployments.cli.top.counts import Poll, Share, share, totals
from deployments.names import Part
from deployments.observability.metrics.rates import (
    ACCEPTED,
    BUSY_S,
    GROUP_SIZES,
    ROWS,
    Growth,
    by_source,
    of_replicas,
)
from deployments.wire.counter_names import FAILED, FINISHED, REJECTED
from specdec.v1 import generation_pb2 as pb

_BAR = 20
"""Length of a full bar in characters."""
_PLACES = (1, 2, 3, 4, 8, 15)
"""Displayed positions of drafted tokens, from 1 on."""
_UNKNOWN = Growth({}, None)
"""Growth of a replica that was missing in the earlier status."""


def view(address: str, poll: Poll, earlier: Poll | None) -> RenderableType:
    """Return the view. Rates and shares are those of the time between the polls.

    Without an earlier poll, or if no group was formed between the polls, they are those of all
    time.
    """
    lately, status = counts.lately(poll, earlier), poll.status
    shown = lately if lately["num_groups"] else totals(status)
    parts: list[RenderableType] = [
        _title(address, shown),
        _pool(status, lately),
        _groups(status, shown),
        _speculation(shown),
        _ends(status),
        _refusals(status),
        _replicas(poll, earlier),
    ]
    if status.cells:
        parts.append(_cells(status))
    return Group(*parts)


def away(message: str) -> RenderableType:
    """Return the view while the service does not answer."""
    return Text(f"{message}; trying again", style="red")


def _title(address: str, shown: Growth) -> Text:
    of = "all time" if shown.seconds is None else f"the last {shown.seconds:.1f} s"
    return Text(f"specdec {address}, shares of {of}", style="bold")


def _pool(status: pb.PoolStatusResponse, lately: Growth) -> Table:
    whole = totals(status)
    targets = [replica for replica in status.replicas if replica.role == Part.TARGET]
    num_ended = sum(counts.ends(lately, FINISHED).values())
    return _row(
        "pool",
        ("running", str(status.num_running)),
        ("waiting", str(status.num_waiting)),
        ("KV", str(_kv(targets))),
        ("tokens/s", _number(lately.per_second(lately["num_committed"]))),
        ("requests/s", _number(lately.per_second(num_ended))),
        ("preempted", f"{whole['num_preemptions']:,.0f}"),
        ("longest wait", f"{status.max_group_wait_s:.2f} s"),
    )


def _groups(status: pb.PoolStatusResponse, shown: Growth) -> Table:
    sizes = shown.each(GROUP_SIZES)
    num_rows = sum(size * count for size, count in enumerate(sizes))
    num_groups = sum(sizes)
    most = max(range(len(sizes)), key=sizes.__getitem__, default=0)
    return _row(
        "groups",
        ("formed", f"{shown['num_groups']:,.0f}"),
        ("rows each", f"{num_rows / num_groups:.1f}" if num_groups else "-"),
        ("most often", str(most) if num_groups else "-"),
        ("equal length", str(share(shown, "num_equal_length_groups", "num_groups"))),
        ("split", str(share(shown, "num_split_groups", "num_groups"))),
        ("fenced", f"{totals(status)['num_fenced']:,.0f}"),
    )


def _speculation(shown: Growth) -> Table:
    """Return a table of shares.

    The share of a position is that of the rounds with a proposal whose token at the position was
    accepted.
    """
    num_proposed = shown["num_proposed_rounds"]
    table = Table("speculation", "share", "", box=None, pad_edge=False, header_style="bold")
    _bar(
        table, "rounds with a proposal", share(shown, "num_proposed_rounds", "num_sequence_rounds")
    )
    _bar(table, "drafted tokens accepted", share(shown, "num_accepted", "num_drafted"))
    for place, count in enumerate(shown.each(ACCEPTED), start=1):
        if place in _PLACES:
            _bar(table, f"accepted at position {place}", Share(count, num_proposed))
    return table


def _ends(status: pb.PoolStatusResponse) -> Table:
    whole = totals(status)
    audit = status.audit
    return _row(
        "requests",
        *((reason, f"{count:,}") for reason, count in counts.ends(whole, FINISHED).items()),
        ("KV misses", f"{whole['num_kv_misses']:,.0f}"),
        ("audited", f"{audit.num_audited:,}"),
        ("diverged", str(audit.num_diverged)),
        ("audits skipped", str(audit.num_skipped)),
    )


def _refusals(status: pb.PoolStatusResponse) -> Table:
    """Return the refusals by the coordinators. Serve counts the requests that an ingress itself
    refuses, such as wrong keys."""
    whole = totals(status)
    ends = counts.ends(whole, REJECTED) | {
        f"failed: {kind}": count for kind, count in counts.ends(whole, FAILED).items()
    }
    shown = ((kind, f"{count:,}") for kind, count in ends.items())
    return _row("refused", *(shown if ends else [("none", "")]))


def _replicas(poll: Poll, earlier: Poll | None) -> Table:
    columns = ("replica", "busy", "rows/s", "sequences", "KV", "prefix hits", "numerics", "state")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    lately = by_source(of_replicas(*earlier), of_replicas(*poll)) if earlier else {}
    for replica in sorted(poll.status.replicas, key=_order):
        did = lately.get(replica.replica_id, _UNKNOWN)
        table.add_row(
            replica.replica_id
            if not poll.status.cells
            else f"{replica.cell}: {replica.replica_id}",
            str(Share(did[BUSY_S], did.seconds or 0.0)),
            _number(did.per_second(did[ROWS])),
            str(replica.num_sequences),
            str(_kv([replica])),
            str(Share(replica.num_prefix_hits, replica.num_prefix_queries)),
            replica.numerics,
            _state(replica),
        )
    return table


def _cells(status: pb.PoolStatusResponse) -> Table:
    columns = ("cell", "running", "waiting", "targets", "drafts", "KV", "tokens")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for cell in status.cells:
        targets = [replica for replica in cell.replicas if replica.role == Part.TARGET]
        numbers = (cell.num_running, cell.num_waiting, len(targets))
        num_drafts = len(cell.replicas) - len(targets)
        tokens = f"{totals(cell)['num_committed']:,.0f}"
        table.add_row(
            str(cell.cell), *map(str, numbers), str(num_drafts), str(_kv(targets)), tokens
        )
    return table


def _order(replica: pb.ReplicaStatus) -> tuple[int, bool, str]:
    return replica.cell, replica.role != Part.TARGET, replica.replica_id


def _state(replica: pb.ReplicaStatus) -> str:
    if replica.is_fenced:
        return "fenced"
    return "leaving" if replica.is_draining else "serving"


def _kv(replicas: Iterable[pb.ReplicaStatus]) -> Share:
    known = list(replicas)
    num_blocks = sum(replica.num_blocks for replica in known)
    return Share(num_blocks - sum(replica.num_free_blocks for replica in known), num_blocks)


def _row(title: str, *cells: tuple[str, str]) -> Table:
    table = Table(
        title, *(name for name, _ in cells), box=None, pad_edge=False, header_style="bold"
    )
    table.add_row("", *(value for _, value in cells))
    return table


def _bar(table: Table, name: str, share: Share) -> None:
    length = round(_BAR * share.part / share.whole) if share.whole else 0
    table.add_row(name, str(share), "█" * length)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
