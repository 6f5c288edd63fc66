"""What a replica that starts is at, told over Ray's key-value store: Serve itself says no more than
that it is starting, and a log lies on the replica's own node."""

from __future__ import annotations

import contextlib
from collections import Counter

from ray.experimental import internal_kv

_NAMESPACE = b"specdec-start"


def tell_stage(application: str, replica_id: str, stage: str) -> None:
    """A word that does not arrive changes nothing."""
    with contextlib.suppress(Exception):
        internal_kv._internal_kv_put(f"{application}/{replica_id}", stage, namespace=_NAMESPACE)


def stages(application: str) -> list[str]:
    """The last that each replica has told: `target: reading weights`, with their number where
    several are as far."""
    keys = internal_kv._internal_kv_list(f"{application}/", namespace=_NAMESPACE)
    found = Counter(f"{_role(key)}: {_told(key)}" for key in keys)
    return [name if count == 1 else f"{count} x {name}" for name, count in sorted(found.items())]


def forget_stages(application: str) -> None:
    """Of replicas of an earlier start."""
    internal_kv._internal_kv_del(f"{application}/", del_by_prefix=True, namespace=_NAMESPACE)


def _told(key: bytes) -> str:
    return (internal_kv._internal_kv_get(key, namespace=_NAMESPACE) or b"").decode()


def _role(key: bytes) -> str:
    return key.decode().partition("/")[2].partition("-")[0]
