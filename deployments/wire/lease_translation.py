"""Between core and wire, in pairs: registration, leases and results."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from deployments.wire.translation import (
    logprobs_from_pb,
    logprobs_to_pb,
    pack_ids,
    sampling_from_pb,
    sampling_to_pb,
    unpack_ids,
)
from specdec.v1 import coordination_pb2 as pb
from specdec_core.choice_rules import ChoiceRules
from specdec_core.leases import (
    GroupLease,
    GroupResult,
    LeaseRow,
    Occupancy,
    ReplicaInfo,
    Role,
    RowResult,
    RowStatus,
)
from specdec_core.models.numerics import Numerics

PROTOCOL_VERSION = 6

_ROLES = {Role.TARGET: pb.ROLE_TARGET, Role.DRAFT: pb.ROLE_DRAFT}
_ROLES_BACK = {value: role for role, value in _ROLES.items()}
_ROW_STATUSES = {
    RowStatus.OK: pb.ROW_STATUS_OK,
    RowStatus.KV_MISS: pb.ROW_STATUS_KV_MISS,
    RowStatus.NO_ROOM: pb.ROW_STATUS_NO_ROOM,
    RowStatus.FAILED: pb.ROW_STATUS_FAILED,
    RowStatus.INVALID: pb.ROW_STATUS_INVALID,
}
_ROW_STATUSES_BACK = {int(value): status for status, value in _ROW_STATUSES.items()}


def register_to_pb(info: ReplicaInfo) -> pb.Register:
    return pb.Register(
        protocol_version=PROTOCOL_VERSION,
        replica_id=info.replica_id,
        role=_ROLES[info.role],
        incarnation=info.incarnation,
        num_blocks=info.num_blocks,
        block_size=info.block_size,
        max_model_len=info.max_model_len,
        vocab_size=info.vocab_size,
        tile_rows=info.tile_rows,
        model_digest=info.model_digest,
        fingerprint=info.fingerprint,
        numerics=info.numerics,
    )


def register_from_pb(message: pb.Register) -> ReplicaInfo:
    """Raises ValueError for another protocol version, an unknown role or unknown numerics."""
    if message.protocol_version != PROTOCOL_VERSION:
        raise ValueError(
            f"protocol version {message.protocol_version} is not {PROTOCOL_VERSION}: "
            "replica and coordinator run different releases"
        )
    if message.role not in _ROLES_BACK:
        raise ValueError(f"unknown role {message.role}")
    return ReplicaInfo(
        replica_id=message.replica_id,
        role=_ROLES_BACK[message.role],
        incarnation=message.incarnation,
        num_blocks=message.num_blocks,
        block_size=message.block_size,
        max_model_len=message.max_model_len,
        vocab_size=message.vocab_size,
        tile_rows=message.tile_rows,
        model_digest=message.model_digest,
        fingerprint=message.fingerprint,
        numerics=Numerics(message.numerics),
    )


def lease_to_pb(lease: GroupLease) -> pb.GroupLease:
    rows = lease.rows
    shapes: list[int] = []
    token_ids: list[int] = []
    for row in rows:
        new_ids, proposal = row.new_ids, row.proposal
        shapes += (row.base_len, len(new_ids), len(proposal), row.num_choices)
        token_ids += new_ids
        token_ids += proposal
    num_scored = [row.num_scored for row in rows]
    return pb.GroupLease(
        lease_id=lease.lease_id,
        num_scored=pack_ids(num_scored) if any(num_scored) else b"",
        epoch=lease.epoch,
        role=_ROLES[lease.role],
        ttl_s=lease.ttl_s,
        min_confidence=lease.min_confidence,
        sequence_ids=[row.sequence_id for row in rows],
        base_hashes=[row.base_hash for row in rows],
        shapes=pack_ids(shapes),
        token_ids=pack_ids(token_ids),
        rules=[
            _rules_to_pb(place, row.rules)
            for place, row in enumerate(rows)
            if row.rules is not None
        ],
    )


def lease_from_pb(message: pb.GroupLease, replica_id: str) -> GroupLease:
    rules = {entry.row: _rules_from_pb(entry) for entry in message.rules}
    num_scored = unpack_ids(message.num_scored) or (0,) * len(message.sequence_ids)
    keys = zip(
        message.sequence_ids, message.base_hashes, _fours(message.shapes), num_scored, strict=True
    )
    ids, start = unpack_ids(message.token_ids), 0
    rows: list[LeaseRow] = []
    for sequence_id, base_hash, (base_len, num_new, num_proposed, num_choices), scored in keys:
        middle, end = start + num_new, start + num_new + num_proposed
        _check_range(start, middle, end, len(ids))
        rows.append(
            LeaseRow(  # by place: keywords double its time
                sequence_id,
                base_len,
                base_hash,
                ids[start:middle],
                ids[middle:end],
                num_choices,
                scored,
                rules.get(len(rows)),
            )
        )
        start = end
    return GroupLease(
        lease_id=message.lease_id,
        epoch=message.epoch,
        replica_id=replica_id,
        role=_ROLES_BACK[message.role],
        rows=tuple(rows),
        ttl_s=message.ttl_s,
        min_confidence=message.min_confidence,
    )


def _rules_to_pb(place: int, rules: ChoiceRules) -> pb.RowRules:
    return pb.RowRules(
        row=place,
        sampling=sampling_to_pb(rules.params),
        prompt_len=rules.prompt_len,
        stop_ids=pack_ids(sorted(rules.stop_ids)),
        cache_salt=rules.cache_salt,
    )


def _rules_from_pb(message: pb.RowRules) -> ChoiceRules:
    return ChoiceRules(
        params=sampling_from_pb(message.sampling),
        prompt_len=message.prompt_len,
        stop_ids=frozenset(unpack_ids(message.stop_ids)),
        cache_salt=message.cache_salt,
    )


def occupancy_to_pb(occupancy: Occupancy) -> pb.Occupancy:
    return pb.Occupancy(
        num_slots=occupancy.num_slots,
        num_free_blocks=occupancy.num_free_blocks,
        num_prefix_queries=occupancy.num_prefix_queries,
        num_prefix_hits=occupancy.num_prefix_hits,
    )


def occupancy_from_pb(message: pb.Occupancy) -> Occupancy:
    return Occupancy(
        num_slots=message.num_slots,
        num_free_blocks=message.num_free_blocks,
        num_prefix_queries=message.num_prefix_queries,
        num_prefix_hits=message.num_prefix_hits,
    )


def result_to_pb(result: GroupResult) -> pb.GroupResult:
    shapes: list[int] = []
    token_ids: list[int] = []
    for row in result.rows:
        shapes += (_ROW_STATUSES[row.status], row.cached_len, len(row.tokens), row.num_accepted)
        token_ids += row.tokens
    return pb.GroupResult(
        lease_id=result.lease_id,
        epoch=result.epoch,
        seconds=result.seconds,
        sequence_ids=[row.sequence_id for row in result.rows],
        shapes=pack_ids(shapes),
        token_ids=pack_ids(token_ids),
        errors=[
            pb.RowError(row=place, message=row.error)
            for place, row in enumerate(result.rows)
            if row.error
        ],
        logprobs=[
            pb.RowLogprobs(
                row=place,
                logprobs=logprobs_to_pb(row.logprobs),
                prompt_logprobs=logprobs_to_pb(row.prompt_logprobs),
            )
            for place, row in enumerate(result.rows)
            if row.logprobs or row.prompt_logprobs
        ],
    )


def result_from_pb(message: pb.GroupResult, replica_id: str) -> GroupResult:
    errors = {entry.row: entry.message for entry in message.errors}
    logprobs = {entry.row: logprobs_from_pb(entry.logprobs) for entry in message.logprobs}
    scored = {entry.row: logprobs_from_pb(entry.prompt_logprobs) for entry in message.logprobs}
    ids, start = unpack_ids(message.token_ids), 0
    rows: list[RowResult] = []
    keys = zip(message.sequence_ids, _fours(message.shapes), strict=True)
    for place, (sequence_id, (status, cached_len, num_tokens, num_accepted)) in enumerate(keys):
        end = start + num_tokens
        _check_range(start, end, end, len(ids))
        rows.append(
            RowResult(  # by place: keywords double its time
                sequence_id,
                _ROW_STATUSES_BACK[status],
                cached_len,
                ids[start:end],
                num_accepted,
                logprobs.get(place, ()),
                scored.get(place, ()),
                errors.get(place, ""),
            )
        )
        start = end
    return GroupResult(
        lease_id=message.lease_id,
        epoch=message.epoch,
        replica_id=replica_id,
        rows=tuple(rows),
        seconds=message.seconds,
    )


def _fours(packed: bytes) -> Iterator[tuple[int, int, int, int]]:
    return struct.iter_unpack("<4i", packed)


def _check_range(start: int, middle: int, end: int, num_ids: int) -> None:
    """Of a row's ids in the message's."""
    if not start <= middle <= end <= num_ids:
        raise ValueError("a message has fewer ids than its shapes say")
