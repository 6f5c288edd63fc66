"""Rejects messages that no replica or ingress of this project sends; the scheduler relies on it.

The scheduler itself checks whether a result belongs to a lease, an epoch and a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from deployments.wire.lease_codec import AnswerColumns
from specdec.v1 import coordination_pb2 as pb
from specdec_core.messages import ReplicaInfo

_MAX_NAME_LEN = 1024
_MAX_HOLD_S = 1.0


def check_introduction(info: ReplicaInfo) -> None:
    """Check a replica's registration. Raises ValueError."""
    block_size = info.kv_cache_spec.block_size
    sizes = (info.num_blocks, block_size, info.max_model_len, info.vocab_size)
    if min(sizes) < 1 or info.tile_rows < 0:
        raise ValueError(f"num_blocks, block_size, max_model_len and vocab_size cannot be {sizes}")
    names = (info.replica_id, info.model_digest, info.fingerprint, info.device)
    if max(map(len, names)) > _MAX_NAME_LEN or not all(name.isprintable() for name in names):
        raise ValueError(f"names must be printable and at most {_MAX_NAME_LEN} characters long")
    times = [number for time in info.step_times for number in time[:3]]
    is_told = all(time.num_cached >= 0 for time in info.step_times)
    if info.max_num_seqs < 0 or not is_told or not all(0 < one < math.inf for one in times):
        raise ValueError(f"a replica cannot have {info.max_num_seqs} rows or pass times {times}")
    if not info.replica_id:
        raise ValueError("replica_id is empty")


def check_answer(message: pb.GroupResult, columns: AnswerColumns, info: ReplicaInfo) -> None:
    """Check a replica's result. Raises ValueError. A token ID outside the vocabulary would fail on
    every replica that receives it.

    `result_from_pb` has accepted `columns`. Checking by column takes half the time of a loop over
    the rows.
    """
    if not (0 <= message.seconds < math.inf and 0 <= message.held_s < math.inf):
        raise ValueError(f"a pass cannot take {message.seconds} of {message.held_s} s")
    if not 0 <= message.recording_s <= message.seconds:
        raise ValueError(f"{message.recording_s} of {message.seconds} s cannot be recording")
    token_ids = columns.token_ids
    if columns.cached_lens:
        capacity = info.kv_cache_spec.max_len(info.num_blocks)
        _check_shapes(columns.cached_lens, columns.nums_accepted, capacity)
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < info.vocab_size:
        raise ValueError(f"a token id is not in 0..{info.vocab_size - 1}")


def checked_hold_s(message: pb.Pace) -> float:
    """Return the hold time of a pace message, in seconds. Raises ValueError."""
    if not 0 <= message.hold_s <= _MAX_HOLD_S:
        raise ValueError(f"news cannot wait {message.hold_s} s: at most {_MAX_HOLD_S:g}")
    return message.hold_s


def _check_shapes(cached_lens: Sequence[int], nums_accepted: Sequence[int], capacity: int) -> None:
    if min(cached_lens) < 0 or max(cached_lens) > capacity:
        least, most = min(cached_lens), max(cached_lens)
        raise ValueError(f"{least} to {most} of {capacity} positions cannot be cached")
    if min(nums_accepted) < 0:
        raise ValueError(f"{min(nums_accepted)} tokens cannot be accepted")
