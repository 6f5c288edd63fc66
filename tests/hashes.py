"""Hashes of prefixes, as tests ask for them."""

from __future__ import annotations

from collections.abc import Iterable

from specdec_core.leases import hashes_behind


def extend_hash(prefix_hash: int, token_ids: Iterable[int]) -> int:
    """Hash of a prefix of ids followed by `token_ids`; an unsigned 64-bit integer."""
    return [prefix_hash, *hashes_behind(prefix_hash, token_ids)][-1]
