"""Check which replicas may serve the same sequences."""

from __future__ import annotations

from collections.abc import Iterable

from specdec_core.config import Numerics, SpecMethod, SpeculationConfig
from specdec_core.errors import InvalidRequestError
from specdec_core.messages import ReplicaInfo, Role


def check_compatible(info: ReplicaInfo, others: Iterable[ReplicaInfo]) -> None:
    """Raise InvalidRequestError if the replica may not join the others.

    Its vocabulary must be that of the others. A target must also have the same model, and with
    exact numerics the same fingerprint. An older incarnation of the replica does not count.
    """
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
                f"{other.replica_id} has {other.fingerprint!r}. With exact numerics, all "
                "targets of a cell must have the same fingerprint. It can join after the "
                "others have left"
            )


def check_rollback(info: ReplicaInfo, config: SpeculationConfig) -> None:
    """Raise InvalidRequestError if the replica cannot forget all drafted tokens of a round."""
    limit = info.kv_cache_spec.max_rollback
    drafts = config.method != SpecMethod.NONE
    if drafts and limit is not None and config.num_draft_tokens > limit:
        raise InvalidRequestError(
            f"replica {info.replica_id} can roll back {limit} cached tokens, "
            f"num_draft_tokens is {config.num_draft_tokens}; lower num_draft_tokens"
        )


def _may_share_a_cell(one: ReplicaInfo, other: ReplicaInfo) -> bool:
    """Return whether a sequence may move between two targets without breaking either's promise."""
    promises_bits = Numerics.EXACT in (one.numerics, other.numerics)
    return one.fingerprint == other.fingerprint or not promises_bits
