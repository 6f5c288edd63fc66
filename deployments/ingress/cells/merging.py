"""Merges the states and totals of several cells: counts add, replicas are listed with their
cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.config import Numerics


def merged_state(states: Iterable[pb.PoolState | None]) -> pb.PoolState | None:
    """Return one state that holds wherever a request runs.

    It has the smallest limit and every fingerprint that may choose the tokens. Its numerics are
    exact only if those of all serving cells are.
    """
    known = [state for state in states if state is not None]
    if not known:
        return None
    serving = [state for state in known if state.num_targets]
    is_exact = bool(serving) and all(state.numerics == Numerics.EXACT for state in serving)
    return pb.PoolState(
        num_targets=sum(state.num_targets for state in known),
        num_drafts=sum(state.num_drafts for state in known),
        num_live=sum(state.num_live for state in known),
        max_model_len=min((state.max_model_len for state in serving), default=0),
        model_digest=serving[0].model_digest if serving else "",
        fingerprint=" | ".join(dict.fromkeys(state.fingerprint for state in serving)),
        numerics=Numerics.EXACT if is_exact else Numerics.FAST,
    )


def merged_status(
    by_cell: Mapping[int, public_pb.PoolStatusResponse],
) -> public_pb.PoolStatusResponse:
    """Return the totals of all cells that answered, and the status of each cell."""
    cells = [_numbered(status, cell) for cell, status in by_cell.items()]
    counters: Counter[str] = Counter()
    for status in cells:
        counters.update(status.counters)
    return public_pb.PoolStatusResponse(
        replicas=[replica for status in cells for replica in status.replicas],
        num_waiting=sum(status.num_waiting for status in cells),
        num_running=sum(status.num_running for status in cells),
        counters=counters,
        max_group_wait_s=max(status.max_group_wait_s for status in cells),
        accepted_per_position=_columns([status.accepted_per_position for status in cells]),
        drafted_per_position=_columns([status.drafted_per_position for status in cells]),
        group_sizes=_columns([status.group_sizes for status in cells]),
        audit=_added([status.audit for status in cells]),
        clients=_added_by([one for status in cells for one in status.clients], "name"),
        stages=_added_by([one for status in cells for one in status.stages], "role", "stage"),
        requests=_added_by([one for status in cells for one in status.requests], "name", "kind"),
        stage_bounds_s=cells[0].stage_bounds_s,
        cells=cells,
    )


def _numbered(status: public_pb.PoolStatusResponse, cell: int) -> public_pb.PoolStatusResponse:
    numbered = public_pb.PoolStatusResponse()
    numbered.CopyFrom(status)
    numbered.cell = cell
    for replica in numbered.replicas:
        replica.cell = cell
    return numbered


def _added_by(messages: Iterable[Any], *keys: str) -> list[Any]:
    """Return one sum for each group of messages that are equal in `keys`."""
    alike: dict[tuple[str, ...], list[Any]] = {}
    for message in messages:
        alike.setdefault(tuple(getattr(message, key) for key in keys), []).append(message)
    return [_added(same, *keys) for same in alike.values()]


def _added(messages: Sequence[Any], *keys: str) -> Any:
    """Return the sum of every field but `keys`. Lists are added position by position."""
    told: dict[str, Any] = {}
    for field in messages[0].DESCRIPTOR.fields:
        values = [getattr(message, field.name) for message in messages]
        if field.name in keys:
            told[field.name] = values[0]
        else:
            is_list = isinstance(values[0], Sequence)
            told[field.name] = _columns(values) if is_list else sum(values)
    return type(messages[0])(**told)


def _columns(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]
