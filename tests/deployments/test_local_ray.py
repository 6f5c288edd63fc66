"""A Ray of our own is started once more when its raylet never came up, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import node

from deployments.local_ray import start_local_ray

NEVER_CAME_UP = (
    "The current node timed out during startup. This could happen because some of the raylet "
    "failed to startup or the GCS has become overloaded."
)


def failing(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[str]:
    """Ray's starts and ends; the first starts fail."""
    calls: list[str] = []
    left = list(errors)

    def init(**options: Any) -> None:
        calls.append(f"init {options}")
        if left:
            raise left.pop(0)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append("shutdown"))
    return calls


def test_it_starts_once_more_with_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = failing(monkeypatch, Exception(NEVER_CAME_UP))
    start_local_ray(num_cpus=3)
    start = "init {'address': 'local', 'num_cpus': 3}"
    assert calls == [start, "shutdown", start]


def test_a_second_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Exception(NEVER_CAME_UP), Exception(NEVER_CAME_UP + " Again."))
    with pytest.raises(Exception, match=r"Again\."):
        start_local_ray()


def test_what_is_wrong_otherwise_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = failing(monkeypatch, ValueError("num_cpus must be positive"))
    with pytest.raises(ValueError, match="num_cpus"):
        start_local_ray(num_cpus=-1)
    assert len(calls) == 1


def test_ray_still_says_it_so() -> None:
    assert "timed out during startup" in Path(node.__file__).read_text()
