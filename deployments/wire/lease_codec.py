"""Conversions between core and wire, in pairs: registration, leases and results."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

from deployments.wire.request_codec import (
    logprobs_from_pb,
    logprobs_to_pb,
    pack_ids,
    sampling_from_pb,
    sampling_to_pb,
    unpack_ids,
)
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import Numerics
from specdec_core.kv_cache.spec import FullAttentionSpec, KVCacheSpec
from specdec_core.messages import (
    REPLICA_METRICS,
    GroupLease,
    GroupResult,
    LeaseRow,
    Occupancy,
    ReplicaInfo,
    Role,
    RowResult,
    RowStatus,
)
from specdec_core.sampling_params import SamplingRules
from specdec_core.step_times import StepTime

PROTOCOL_VERSION = 7

_ROLES = {Role.TARGET: pb.ROLE_TARGET, Role.DRAFT: pb.ROLE_DRAFT}
_ROLES_BACK = {value: role for role, value in _ROLES.items()}
_ROW_STATUSES = {
    RowStatus.OK: pb.ROW_STATUS_OK,
    RowStatus.KV_MISS: pb.ROW_STATUS_KV_MISS,
    RowStatus.NO_ROOM: pb.ROW_STATUS_NO_ROOM,
    RowStatus.FAILED: pb.ROW_STATUS_FAILED,
    RowStatus.INVALID: pb.ROW_STATUS_INVALID,
    RowStatus.NOT_READY: pb.ROW_STATUS_NOT_READY,
}
_ROW_STATUSES_BACK = {int(value): status for status, value in _ROW_STATUSES.items()}
_COUNTS = ("num_slots", "num_free_blocks", "num_prefix_queries", "num_prefix_hits")
_FULL_ATTENTION = "full"
"""`kind` of a FullAttentionSpec."""
_TOO_FEW_IDS = "a message has fewer ids than its shapes say"


def register_to_pb(info: ReplicaInfo) -> pb.Register:
    return pb.Register(
        protocol_version=PROTOCOL_VERSION,
        replica_id=info.replica_id,
        role=_ROLES[info.role],
        incarnation=info.incarnation,
        num_blocks=info.num_blocks,
        block_size=info.kv_cache_spec.block_size,
        max_model_len=info.max_model_len,
        vocab_size=info.vocab_size,
        tile_rows=info.tile_rows,
        model_digest=info.model_digest,
        fingerprint=info.fingerprint,
        numerics=info.numerics,
        device=info.device,
        keeps_prefixes=info.keeps_prefixes,
        step_times=[pb.StepTime(**timed._asdict()) for timed in info.step_times],
        max_num_seqs=info.max_num_seqs,
        kv_cache_spec=_spec_to_pb(info.kv_cache_spec),
    )


def register_from_pb(message: pb.Register) -> ReplicaInfo:
    """Raises ValueError for another protocol version, and for an unknown role, numerics or kind of
    KV cache."""
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
        kv_cache_spec=_spec_from_pb(message),
        max_model_len=message.max_model_len,
        vocab_size=message.vocab_size,
        tile_rows=message.tile_rows,
        model_digest=message.model_digest,
        fingerprint=message.fingerprint,
        numerics=Numerics(message.numerics),
        device=message.device,
        keeps_prefixes=message.keeps_prefixes,
        step_times=tuple(
            StepTime(time.num_sequences, time.num_rows, time.seconds, time.num_cached)
            for time in message.step_times
        ),
        max_num_seqs=message.max_num_seqs,
    )


def _spec_to_pb(spec: KVCacheSpec) -> pb.KVCacheSpec:
    """Convert all but the block size, which is in a field of Register."""
    assert isinstance(spec, FullAttentionSpec), "a new kind of cache needs a name on the wire"
    return pb.KVCacheSpec(kind=_FULL_ATTENTION, bytes_per_block=spec.bytes_per_block)


def _spec_from_pb(message: pb.Register) -> KVCacheSpec:
    spec = message.kv_cache_spec
    if spec.kind not in ("", _FULL_ATTENTION):  # an earlier release sends none
        raise ValueError(f"unknown kind of KV cache {spec.kind!r}")
    return FullAttentionSpec(message.block_size, spec.bytes_per_block)


def write_lease(message: pb.GroupLease, lease: GroupLease) -> None:
    """Write a lease into an empty message, already in place for sending; see write_event."""
    message.lease_id = lease.lease_id
    message.epoch = lease.epoch
    message.role = _ROLES[lease.role]
    message.ttl_s = lease.ttl_s
    message.min_confidence = lease.min_confidence
    if lease.rows:
        _write_rows(message, lease.rows)


def _write_rows(message: pb.GroupLease, rows: Sequence[LeaseRow]) -> None:
    """Write the rows by column, which takes less time than a loop over the rows."""
    sequence_ids, base_lens, base_hashes, new_ids, proposals, num_choices, num_scored, rules = zip(
        *rows, strict=True
    )
    shapes = zip(base_lens, map(len, new_ids), map(len, proposals), num_choices, strict=True)
    fed = chain.from_iterable(zip(new_ids, proposals, strict=True))
    message.sequence_ids.extend(sequence_ids)
    message.base_hashes.extend(base_hashes)
    message.shapes = pack_ids(tuple(chain.from_iterable(shapes)))
    message.token_ids = pack_ids(tuple(chain.from_iterable(fed)))
    if any(num_scored):
        message.num_scored = pack_ids(num_scored)
    message.rules.extend(
        _rules_to_pb(row_index, its) for row_index, its in enumerate(rules) if its is not None
    )


def lease_from_pb(message: pb.GroupLease, replica_id: str) -> GroupLease:
    rules = {entry.row: _rules_from_pb(entry) for entry in message.rules}
    num_scored = unpack_ids(message.num_scored) or (0,) * len(message.sequence_ids)
    shapes = struct.iter_unpack("<4i", message.shapes)
    keys = zip(message.sequence_ids, message.base_hashes, shapes, num_scored, strict=True)
    ids, start = unpack_ids(message.token_ids), 0
    rows: list[LeaseRow] = []
    for sequence_id, base_hash, (base_len, num_new, num_proposed, num_choices), scored in keys:
        middle, end = start + num_new, start + num_new + num_proposed
        if not start <= middle <= end <= len(ids):
            raise ValueError(_TOO_FEW_IDS)
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


def _rules_to_pb(row_index: int, rules: SamplingRules) -> pb.RowRules:
    return pb.RowRules(
        row=row_index,
        sampling=sampling_to_pb(rules.params),
        prompt_len=rules.prompt_len,
        stop_ids=pack_ids(sorted(rules.stop_ids)),
        cache_salt=rules.cache_salt,
    )


def _rules_from_pb(message: pb.RowRules) -> SamplingRules:
    return SamplingRules(
        params=sampling_from_pb(message.sampling),
        prompt_len=message.prompt_len,
        stop_ids=frozenset(unpack_ids(message.stop_ids)),
        cache_salt=message.cache_salt,
    )


def occupancy_to_pb(occupancy: Occupancy) -> pb.Occupancy:
    return pb.Occupancy(
        **{name: getattr(occupancy, name) for name in _COUNTS}, metrics=replica_metrics(occupancy)
    )


def occupancy_from_pb(message: pb.Occupancy) -> Occupancy:
    """Return the record. A metric that the sender does not know keeps its default."""
    fields: dict[str, Any] = {name: getattr(message, name) for name in _COUNTS}
    fields |= {name: message.metrics[name] for name in REPLICA_METRICS if name in message.metrics}
    return Occupancy(**fields)


def replica_metrics(occupancy: Occupancy) -> dict[str, float]:
    return {name: getattr(occupancy, name) for name in REPLICA_METRICS}


def write_result(message: pb.GroupResult, result: GroupResult) -> None:
    """Write a result into an empty message, already in place for sending; see write_event."""
    shapes: list[int] = []
    token_ids: list[int] = []
    for row in result.rows:
        shapes += (_ROW_STATUSES[row.status], row.cached_len, len(row.tokens), row.num_accepted)
        token_ids += row.tokens
    message.lease_id = result.lease_id
    message.epoch = result.epoch
    message.seconds = result.seconds
    message.recording_s = result.recording_s
    message.sequence_ids.extend([row.sequence_id for row in result.rows])
    message.shapes = pack_ids(shapes)
    message.token_ids = pack_ids(token_ids)
    for row_index, row in enumerate(result.rows):
        if row.error:
            message.errors.add(row=row_index, message=row.error)
        if row.logprobs or row.prompt_logprobs:
            message.logprobs.add(
                row=row_index,
                logprobs=logprobs_to_pb(row.logprobs),
                prompt_logprobs=logprobs_to_pb(row.prompt_logprobs),
            )
    if any(row.num_matched for row in result.rows):
        message.num_found = pack_ids([row.num_matched for row in result.rows])


class AnswerColumns(NamedTuple):
    """The packed numbers of a GroupResult, with one column per field of its rows."""

    statuses: tuple[int, ...]
    cached_lens: tuple[int, ...]
    nums_tokens: tuple[int, ...]
    nums_accepted: tuple[int, ...]
    token_ids: tuple[int, ...]
    """Token IDs of all rows, one row after the other."""


def unpack_answer(message: pb.GroupResult) -> AnswerColumns:
    """Unpack the columns once, for all who read them. Raises struct.error."""
    shapes = unpack_ids(message.shapes)
    statuses, cached_lens, nums_tokens, nums_accepted = (shapes[i::4] for i in range(4))
    return AnswerColumns(
        statuses, cached_lens, nums_tokens, nums_accepted, unpack_ids(message.token_ids)
    )


def result_from_pb(message: pb.GroupResult, columns: AnswerColumns, replica_id: str) -> GroupResult:
    """Return the result. `columns` are the message's. Raises ValueError or LookupError."""
    statuses, cached_lens, nums_tokens, nums_accepted, ids = columns
    ends = tuple(accumulate(nums_tokens))
    if nums_tokens and (min(nums_tokens) < 0 or ends[-1] > len(ids)):
        raise ValueError(_TOO_FEW_IDS)
    by_row = (message.sequence_ids, statuses, cached_lens, nums_tokens, ends, nums_accepted)
    rows = [
        RowResult(  # by place: keywords double its time
            sequence_id, _ROW_STATUSES_BACK[status], cached_len, ids[end - num : end], num_accepted
        )
        for sequence_id, status, cached_len, num, end, num_accepted in zip(*by_row, strict=True)
    ]
    if message.errors or message.logprobs or message.num_found:
        rows = _with_reports(rows, message)
    return GroupResult(
        lease_id=message.lease_id,
        epoch=message.epoch,
        replica_id=replica_id,
        rows=tuple(rows),
        seconds=message.seconds,
        recording_s=message.recording_s,
    )


def _with_reports(rows: Sequence[RowResult], message: pb.GroupResult) -> list[RowResult]:
    """Return the rows with the reports that few groups have."""
    errors = {entry.row: entry.message for entry in message.errors}
    logprobs = {entry.row: logprobs_from_pb(entry.logprobs) for entry in message.logprobs}
    scored = {entry.row: logprobs_from_pb(entry.prompt_logprobs) for entry in message.logprobs}
    matched = unpack_ids(message.num_found) or (0,) * len(rows)
    return [
        row._replace(
            logprobs=logprobs.get(row_index, ()),
            prompt_logprobs=scored.get(row_index, ()),
            error=errors.get(row_index, ""),
            num_matched=num_matched,
        )
        for row_index, (row, num_matched) in enumerate(zip(rows, matched, strict=True))
    ]
