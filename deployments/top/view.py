"""The view of a running service: two statuses in, one renderable out. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deployments.top.counts import Counts, Poll, Share, between, lives, totals
from specdec.v1 import generation_pb2 as pb

_TARGET = "target"
_BAR = 20
"""Characters of a full bar."""


def view(address: str, poll: Poll, earlier: Poll | None) -> RenderableType:
    """Rates and shares are of the time between the polls; of all time where there is none, or
    where no group was formed in it."""
    lately, status = between(poll, earlier), poll.status
    shown = lately if lately["num_groups"] else totals(status)
    parts: list[RenderableType] = [
        _title(address, shown),
        _pool(status, lately),
        _groups(status, shown),
        _speculation(shown),
        _ends(status),
        _replicas(poll, earlier),
    ]
    if status.cells:
        parts.append(_cells(status))
    return Group(*parts)


def away(message: str) -> RenderableType:
    """While nobody answers."""
    return Text(f"{message}; trying again", style="red")


def _title(address: str, shown: Counts) -> Text:
    of = "all time" if shown.seconds is None else f"the last {shown.seconds:.1f} s"
    return Text(f"specdec {address}, shares of {of}", style="bold")


def _pool(status: pb.PoolStatusResponse, lately: Counts) -> Table:
    whole = totals(status)
    targets = [replica for replica in status.replicas if replica.role == _TARGET]
    num_ended = sum(lately.finished.values())
    return _row(
        "pool",
        ("running", str(status.num_running)),
        ("waiting", str(status.num_waiting)),
        ("KV", str(_kv(targets))),
        ("tokens/s", _number(lately.per_second(lately["num_committed"]))),
        ("requests/s", _number(lately.per_second(num_ended))),
        ("preempted", str(whole["num_preemptions"])),
        ("longest wait", f"{status.max_group_wait_s:.2f} s"),
    )


def _groups(status: pb.PoolStatusResponse, shown: Counts) -> Table:
    num_rows = sum(size * count for size, count in enumerate(shown.group_sizes))
    num_groups = sum(shown.group_sizes)
    most = max(range(len(shown.group_sizes)), key=shown.group_sizes.__getitem__, default=0)
    return _row(
        "groups",
        ("formed", f"{shown['num_groups']:,}"),
        ("rows each", f"{num_rows / num_groups:.1f}" if num_groups else "-"),
        ("most often", str(most) if num_groups else "-"),
        ("equal length", str(shown.share("num_equal_length_groups", "num_groups"))),
        ("split", str(shown.share("num_split_groups", "num_groups"))),
        ("fenced", str(totals(status)["num_fenced"])),
    )


def _speculation(shown: Counts) -> Table:
    """By position: of the rounds with a proposal, those that accepted its token there."""
    num_proposed = shown["num_proposed_rounds"]
    table = Table("speculation", "share", "", box=None, pad_edge=False, header_style="bold")
    _bar(table, "rounds with a proposal", shown.share("num_proposed_rounds", "num_sequence_rounds"))
    _bar(table, "drafted tokens accepted", shown.share("num_accepted", "num_drafted"))
    for place, count in enumerate(shown.accepted, start=1):
        _bar(table, f"accepted at position {place}", Share(count, num_proposed))
    return table


def _ends(status: pb.PoolStatusResponse) -> Table:
    whole = totals(status)
    audit = status.audit
    return _row(
        "requests",
        *((reason, f"{count:,}") for reason, count in whole.finished.items()),
        ("KV misses", str(whole["num_kv_misses"])),
        ("audited", f"{audit.num_audited:,}"),
        ("diverged", str(audit.num_diverged)),
        ("audits skipped", str(audit.num_skipped)),
    )


def _replicas(poll: Poll, earlier: Poll | None) -> Table:
    columns = ("replica", "busy", "rows/s", "sequences", "KV", "prefix hits", "numerics", "state")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    before = _known(poll, earlier)
    seconds = poll.at_s - earlier.at_s if earlier is not None else 0.0
    for replica in sorted(poll.status.replicas, key=_order):
        old = before.get(replica.replica_id)
        busy = Share(replica.busy_s - old.busy_s, seconds) if old else Share(0, 0)
        table.add_row(
            replica.replica_id
            if not poll.status.cells
            else f"{replica.cell}: {replica.replica_id}",
            str(busy),
            _number((replica.num_rows - old.num_rows) / seconds if old and seconds else None),
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
        targets = [replica for replica in cell.replicas if replica.role == _TARGET]
        numbers = (cell.num_running, cell.num_waiting, len(targets))
        num_drafts = len(cell.replicas) - len(targets)
        tokens = f"{totals(cell)['num_committed']:,}"
        table.add_row(
            str(cell.cell), *map(str, numbers), str(num_drafts), str(_kv(targets)), tokens
        )
    return table


def _known(poll: Poll, earlier: Poll | None) -> dict[str, pb.ReplicaStatus]:
    """The replicas as they were, as long as they are counted on from there."""
    if earlier is None or lives(poll.status) != lives(earlier.status):
        return {}
    return {replica.replica_id: replica for replica in earlier.status.replicas}


def _order(replica: pb.ReplicaStatus) -> tuple[int, bool, str]:
    return replica.cell, replica.role != _TARGET, replica.replica_id


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
