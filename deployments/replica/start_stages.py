"""Reports the stage of each starting replica over Ray's key-value store.

Serve itself reports only that a replica is starting, and logs stay on the replica's own node.
"""

from __future__ import annotations

import contextlib
from collections import Counter

from ray.experimental import internal_kv

_NAMESPACE = b"specdec-start"


def report_stage(application: str, replica_id: str, stage: str) -> None:
    """Report a stage. A report that is lost changes nothing."""
    with contextlib.suppress(Exception):
        internal_kv._internal_kv_put(f"{application}/{replica_id}", stage, namespace=_NAMESPACE)


def stages(application: str) -> list[str]:
    """Return the last stage that each replica reported, such as `target: reading weights`.

    If several replicas are at the same stage, their number precedes it.
    """
    keys = internal_kv._internal_kv_list(f"{application}/", namespace=_NAMESPACE)
    counts = Counter(f"{_role(key)}: {_stage(key)}" for key in keys)
    return [name if count == 1 else f"{count} x {name}" for name, count in sorted(counts.items())]


def forget_stages(application: str) -> None:
    """Delete the stages of replicas of an earlier start."""
    internal_kv._internal_kv_del(f"{application}/", del_by_prefix=True, namespace=_NAMESPACE)


def _stage(key: bytes) -> str:
    return (internal_kv._internal_kv_get(key, namespace=_NAMESPACE) or b"").decode()


def _role(key: bytes) -> str:
    return key.decode().partition("/")[2].partition("-")[0]
