"""docker/ray: the operator's question takes a connection, everything else is for Ray."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manifests.dockerfile import ROOT

_RAY = ROOT / "docker" / "ray"


def ask(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, *words], capture_output=True, text=True, timeout=30)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def in_front(tmp_path: Path) -> Path:
    """The script in front of a `ray` that says what it was asked."""
    own = tmp_path / "own"
    own.write_text('#!/bin/sh\necho "$@"\n')
    own.chmod(0o755)
    script = tmp_path / "ray"
    text = _RAY.read_text()
    assert "exec /opt/venv/bin/ray" in text
    script.write_text(text.replace("/opt/venv/bin/ray", str(own)))
    script.chmod(0o755)
    return script


def test_a_head_that_listens_is_healthy(listener: socket.socket) -> None:
    began = time.monotonic()
    asked = ask(_RAY, "health-check", "--address", f"127.0.0.1:{listener.getsockname()[1]}")
    assert asked.returncode == 0, asked.stderr
    assert time.monotonic() - began < 5.0


def test_one_that_does_not_is_not(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    assert ask(_RAY, "health-check", "--address", f"127.0.0.1:{port}").returncode != 0
    assert ask(_RAY, "health-check", "--address", f"no.such.host.invalid:{port}").returncode != 0


@pytest.mark.parametrize(
    "words",
    [("start", "--head"), ("health-check",), ("health-check", "--address", "a:1", "--verbose")],
)
def test_everything_else_is_for_ray(in_front: Path, words: tuple[str, ...]) -> None:
    asked = ask(in_front, *words)
    assert asked.returncode == 0
    assert asked.stdout.split() == list(words)
