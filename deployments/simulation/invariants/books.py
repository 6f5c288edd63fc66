"""(g): finds everything that the service still keeps when no work is left, in any container."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any

_CONTAINERS = (dict, list, set, deque, array)
_PACKAGES = ("specdec_core.", "deployments.")
_NOT_SERVED = "deployments.simulation."
_MOST = 100
"""Maximum entries of the containers listed below. None grows with the number of past requests."""
_KEPT = (
    "driver._ingresses",
    "driver.replicas",
    "driver.replicas[].times._of",
    "driver.requests._failed",
    "driver.requests._rejected",
    "driver._wake._waiters",
    "driver.stages",
    "driver.stages[].buckets",
    "driver.ingress_times.histograms",
    "driver.ingress_times.histograms[].buckets",
    "driver.auditor.counts.audited",
    "driver.auditor.counts.diverged",
    "driver.quotas.usage",
    "driver.scheduler._replicas.drafts",
    "driver.scheduler._replicas.by_id",
    "driver.scheduler._replicas.targets",
    "driver.scheduler._replicas.by_id[].ready_queue.prefix_index._blocks",
    "driver.scheduler._replicas.by_id[].device._answered_at",
    "driver.scheduler._replicas.by_id[].device._passes",
    "driver.scheduler._replicas.by_id[].device.leases",
    "driver.scheduler._requests._proposer.drafters._made",
    "driver.scheduler._requests._proposer._shared_drafting",
    "driver.scheduler._requests._deadlines",
)
"""Containers that may keep entries by replica, stream, client, setting, kind, bucket or block.
Timeouts are removed once there are many."""
_FIGURES = (
    "driver.scheduler._k_policy.",
    "driver.scheduler._pipelining.",
    "driver.scheduler._stats.",
)
"""Path prefixes of containers with measurements, by kind."""


def leftovers(driver: object) -> dict[str, int]:
    """Return the containers that should be empty or small, and are not, with their lengths."""
    return {
        path: length
        for path, length in lengths(driver, "driver").items()
        if length > (_MOST if path in _KEPT or path.startswith(_FIGURES) else 0)
    }


def lengths(root: object, name: str) -> dict[str, int]:
    """Return the length of the longest container on each path of attributes below `root`. In a
    path, [] means the items of a container. Immutable records are not searched."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting = deque([(name, root)])
    while waiting:
        path, thing = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, _CONTAINERS):
            found[path] = max(found[path], len(thing))
            items = thing.values() if isinstance(thing, dict) else thing
            waiting += [(f"{path}[]", item) for item in items if _is_ours(item)]
        elif _is_ours(thing):
            waiting += [(f"{path}.{key}", value) for key, value in _attributes(thing)]
    return dict(found)


def _is_ours(thing: object) -> bool:
    return not isinstance(thing, type) and _are_ours(type(thing))  # type: ignore[arg-type]


@cache
def _are_ours(kind: type) -> bool:
    """Return True if objects of the class are containers, or mutable records of this project."""
    if issubclass(kind, _CONTAINERS):
        return True
    module = kind.__module__
    if issubclass(kind, Enum) or not module.startswith(_PACKAGES):
        return False
    if module.startswith(_NOT_SERVED) and "Watched" not in kind.__name__:
        return False
    return not (is_dataclass(kind) and kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for name in _slots(type(thing)):  # type: ignore[arg-type]
        if hasattr(thing, name):
            yield name, getattr(thing, name)


@cache
def _slots(kind: type) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for one in kind.__mro__:
        slots = one.__dict__.get("__slots__", ())
        names |= dict.fromkeys([slots] if isinstance(slots, str) else slots)
    return tuple(name for name in names if name != "__dict__")
