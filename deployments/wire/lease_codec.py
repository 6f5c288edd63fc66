"""Conversions between core and wire, in pairs: registration, leases and results."""

from __future__ import annotations

import math
import struct
from itertools import chain

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
    if not lease.rows:
        return
    # By column, which takes less time than a loop over the rows.
    sequence_ids, base_lens, base_hashes, new_ids, proposals, num_choices, num_scored, rules = zip(
        *lease.rows, strict=True
    )
    shapes = zip(base_lens, map(len, new_ids), map(len, proposals), num_choices, strict=True)
    fed = chain.from_iterable(zip(new_ids, proposals, strict=True))
    message.sequence_ids.extend(sequence_ids)
    message.base_hashes.extend(base_hashes)
    message.shapes = pack_ids(tuple(chain.from_iterable(shapes)))
    message.token_ids = pack_ids(tuple(chain.from_iterable(fed)))
    if any(num_scored):
        message.num_scored = pack_ids(num_scored)
    for row_index, its in enumerate(rules):
        if its is not None:
            sent = message.rules.add(row=row_index, prompt_len=its.prompt_len)
            sent.sampling.CopyFrom(sampling_to_pb(its.params))
            sent.stop_ids, sent.cache_salt = pack_ids(sorted(its.stop_ids)), its.cache_salt


def lease_from_pb(message: pb.GroupLease, replica_id: str) -> GroupLease:
    rules: dict[int, SamplingRules] = {}
    for entry in message.rules:
        params, stop_ids = sampling_from_pb(entry.sampling), frozenset(unpack_ids(entry.stop_ids))
        rules[entry.row] = SamplingRules(params, entry.prompt_len, stop_ids, entry.cache_salt)
    num_scored = unpack_ids(message.num_scored) or (0,) * len(message.sequence_ids)
    shapes = struct.iter_unpack("<4i", message.shapes)
    keys = zip(message.sequence_ids, message.base_hashes, shapes, num_scored, strict=True)
    ids, start = unpack_ids(message.token_ids), 0
    rows: list[LeaseRow] = []
    for sequence_id, base_hash, (base_len, num_new, num_proposed, num_choices), scored in keys:
        middle, end = start + num_new, start + num_new + num_proposed
        if not start <= middle <= end <= len(ids):
            raise ValueError(_TOO_FEW_IDS)
        new, proposal, its = ids[start:middle], ids[middle:end], rules.get(len(rows))
        # By place: keywords double its time.
        row = LeaseRow(sequence_id, base_len, base_hash, new, proposal, num_choices, scored, its)
        rows.append(row)
        start = end
    lease_id, epoch, role = message.lease_id, message.epoch, _ROLES_BACK[message.role]
    ttl_s, min_confidence = message.ttl_s, message.min_confidence
    return GroupLease(lease_id, epoch, replica_id, role, tuple(rows), ttl_s, min_confidence)


def occupancy_to_pb(occupancy: Occupancy) -> pb.Occupancy:
    """Return the message, which the coordinator passes on in PoolStatus."""
    message = pb.Occupancy(
        num_slots=occupancy.num_slots,
        num_free_blocks=occupancy.num_free_blocks,
        num_prefix_queries=occupancy.num_prefix_queries,
        num_prefix_hits=occupancy.num_prefix_hits,
    )
    for name in REPLICA_METRICS:
        message.metrics[name] = getattr(occupancy, name)
    return message


def write_result(message: pb.GroupResult, result: GroupResult) -> None:
    """Write a result into an empty message, already in place for sending; see write_event."""
    message.lease_id = result.lease_id
    message.epoch = result.epoch
    message.seconds = result.seconds
    message.recording_s = result.recording_s
    sequence_ids: list[int] = []
    shapes: list[int] = []
    token_ids: list[int] = []
    nums_matched: list[int] = []
    for row_index, row in enumerate(result.rows):
        sequence_ids.append(row.sequence_id)
        shapes += (_ROW_STATUSES[row.status], row.cached_len, len(row.tokens), row.num_accepted)
        token_ids += row.tokens
        nums_matched.append(row.num_matched)
        if row.error or row.logprobs or row.prompt_logprobs:
            _write_error_and_logprobs(message, row_index, row)
    message.sequence_ids.extend(sequence_ids)
    message.shapes = pack_ids(shapes)
    message.token_ids = pack_ids(token_ids)
    if any(nums_matched):
        message.num_found = pack_ids(nums_matched)


def _write_error_and_logprobs(message: pb.GroupResult, row_index: int, row: RowResult) -> None:
    if row.error:
        message.errors.add(row=row_index, message=row.error)
    if row.logprobs or row.prompt_logprobs:
        message.logprobs.add(
            row=row_index,
            logprobs=logprobs_to_pb(row.logprobs),
            prompt_logprobs=logprobs_to_pb(row.prompt_logprobs),
        )


def result_from_pb(
    message: pb.GroupResult, replica_id: str, *, max_cached_len: int, vocab_size: int
) -> GroupResult:
    """Return a replica's result. Raises ValueError, LookupError or struct.error for one that no
    replica of this project sends. A token ID outside the vocabulary would fail on every replica
    that receives it."""
    seconds, recording_s = message.seconds, message.recording_s
    if not (0 <= seconds < math.inf and 0 <= message.held_s < math.inf):
        raise ValueError(f"a pass of {seconds} s in a lease of {message.held_s} s is not possible")
    if not 0 <= recording_s <= seconds:
        raise ValueError(f"recording_s={recording_s} must be in 0..{seconds}, the time of the pass")
    # Checking by column takes half the time of checking in the loop over the rows.
    shapes, ids = unpack_ids(message.shapes), unpack_ids(message.token_ids)
    statuses, cached_lens = shapes[::4], shapes[1::4]
    nums_tokens, nums_accepted = shapes[2::4], shapes[3::4]
    if cached_lens and not 0 <= min(cached_lens) <= max(cached_lens) <= max_cached_len:
        least, most = min(cached_lens), max(cached_lens)
        raise ValueError(f"cached lengths must be in 0..{max_cached_len}, got {least} to {most}")
    if min(nums_accepted, default=0) < 0:
        raise ValueError(f"{min(nums_accepted)} tokens cannot be accepted")
    if min(nums_tokens, default=0) < 0 or sum(nums_tokens) > len(ids):
        raise ValueError(_TOO_FEW_IDS)
    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
        raise ValueError(f"a token id is not in 0..{vocab_size - 1}")
    matched = unpack_ids(message.num_found) or (0,) * len(statuses)
    by_row = (message.sequence_ids, statuses, cached_lens, nums_tokens, nums_accepted, matched)
    rows: list[RowResult] = []
    start = 0
    for sequence_id, code, cached_len, num, accepted, found in zip(*by_row, strict=True):
        status, tokens = _ROW_STATUSES_BACK[code], ids[start : start + num]
        # By place: keywords double its time.
        rows.append(RowResult(sequence_id, status, cached_len, tokens, accepted, (), (), "", found))
        start += num
    if message.errors or message.logprobs:
        _add_errors_and_logprobs(rows, message)
    return GroupResult(
        message.lease_id, message.epoch, replica_id, tuple(rows), seconds, recording_s
    )


def _add_errors_and_logprobs(rows: list[RowResult], message: pb.GroupResult) -> None:
    for error in message.errors:
        rows[error.row] = rows[error.row]._replace(error=error.message)
    for entry in message.logprobs:
        rows[entry.row] = rows[entry.row]._replace(
            logprobs=logprobs_from_pb(entry.logprobs),
            prompt_logprobs=logprobs_from_pb(entry.prompt_logprobs),
        )
