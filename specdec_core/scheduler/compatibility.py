"""Which replicas may serve the same sequences."""

from __future__ import annotations

from collections.abc import Iterable

from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.messages import ReplicaInfo, Role


def check_compatible(info: ReplicaInfo, others: Iterable[ReplicaInfo]) -> None:
    """Raises InvalidRequestError for a replica of another vocabulary, and for a target of another
    model or of other bits. An older incarnation of the replica itself does not count."""
    for other in others:
        if other.replica_id == info.replica_id:
            continue
        if other.vocab_size != info.vocab_size:
            raise InvalidRequestError(
                f"replica {info.replica_id} has vocab_size {info.vocab_size}, "
                f"{other.replica_id} has {other.vocab_size}"
            )
        are_targets = info.role is other.role is Role.TARGET
        if are_targets and other.model_digest != info.model_digest:
            raise InvalidRequestError(
                f"target {info.replica_id} has model_digest {info.model_digest!r}, "
                f"{other.replica_id} has {other.model_digest!r}"
            )
        if are_targets and not _may_share_a_cell(info, other):
            raise InvalidRequestError(
                f"target {info.replica_id} has the fingerprint {info.fingerprint!r}, "
                f"{other.replica_id} has {other.fingerprint!r}: with exact numerics the "
                "targets of a cell must be equal; it is let in when the others have left"
            )


def _may_share_a_cell(one: ReplicaInfo, other: ReplicaInfo) -> bool:
    """Whether a sequence may move between them without breaking what either promises."""
    promises_bits = Numerics.EXACT in (one.numerics, other.numerics)
    return one.fingerprint == other.fingerprint or not promises_bits
