"""Ports that stay free until their server listens, however long its start waits for others."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from benchmarks.harness import ports
from benchmarks.harness.ports import free_port

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not _RANGE.exists(), reason="a kernel that tells no range")
def test_no_connection_is_given_the_port_meanwhile() -> None:
    first, last = map(int, _RANGE.read_text().split())
    assert not any(first <= free_port() <= last for _ in range(200))


def test_a_port_that_somebody_has_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_CANDIDATES", (port, free_port()))
        assert {free_port() for _ in range(50)} == {ports._CANDIDATES[1]}
