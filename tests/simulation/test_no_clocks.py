"""What runs in simulated worlds takes its clock and its randomness from outside."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent / "deployments"
RUN = (
    "coordinator/quotas.py",
    "coordinator/connections.py",
    "coordinator/draining.py",
    "coordinator/streams.py",
    "coordinator/request_table.py",
    "coordinator/driver.py",
    "coordinator/audit.py",
    "coordinator/service.py",
    "ingress/client_resume.py",
    "ingress/streams.py",
    "ingress/scheduler_client.py",
    "ingress/open_requests.py",
    "replica/work_loop.py",
    "observability/metrics/round_stages.py",
    "wire/lease_codec.py",
    "wire/liveness.py",
    "wire/request_codec.py",
)
ALLOWED = ("random.Random",)
"""A generator of one's own, where nobody gave one."""


def calls_of(source: str) -> list[str]:
    """Calls of `time` and `random`. To name one as a default is none."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in ("time", "random"):
                found.append(f"{owner.id}.{node.func.attr}")
    return [call for call in found if call not in ALLOWED]


@pytest.mark.parametrize("path", RUN)
def test_it_calls_neither_a_clock_nor_a_random_number(path: str) -> None:
    assert calls_of((ROOT / path).read_text()) == []


def test_one_that_does_is_found() -> None:
    assert calls_of("import time\ndef f(clock=time.monotonic): return time.time()") == ["time.time"]
