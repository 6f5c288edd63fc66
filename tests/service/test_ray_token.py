"""The Ray that `specdec serve` starts lets nobody in without its token."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import ray

from tests.service.conftest import Service

pytestmark = pytest.mark.slow

_JOIN = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
print("joined", len(ray.nodes()))
"""


def join(address: str, **environment: str) -> str:
    """What becomes of a process that wants to join."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    done = subprocess.run(
        [sys.executable, "-c", _JOIN, address],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout + done.stderr


def test_nobody_joins_without_the_token(service: Service) -> None:
    address = ray.get_runtime_context().gcs_address
    assert "joined 1" in join(address)
    for stranger in (
        {"RAY_AUTH_MODE": "disabled"},
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "guessed" * 8},
    ):
        told = join(address, **stranger)
        assert "joined" not in told
        assert "auth" in told.lower()
