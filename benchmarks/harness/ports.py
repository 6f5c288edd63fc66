"""Ports of this machine. Runners in other environments import this file: standard library only."""

from __future__ import annotations

import contextlib
import random
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy for the outer world does not know this machine's ports."""


def free_port() -> int:
    """A port that nobody has, and that no connection is given by the kernel before its server
    listens there: a start may wait for minutes."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port := random.SystemRandom().choice(_CANDIDATES)))
            return port


def _beside_the_kernels_own() -> Sequence[int]:
    """Ports that a connection or a port of 0 never gets; Ray's workers have those below 20,000."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as told:
            first, last = map(int, told.read().split())
    except (OSError, ValueError):
        first, last = 32_768, 65_535
    found = [port for port in range(20_000, 65_536) if not first <= port <= last]
    return found or range(20_000, 65_536)


_CANDIDATES = _beside_the_kernels_own()


def is_up(url: str) -> bool:
    """Whether a server is up there and well."""
    try:
        with _OPENER.open(url, timeout=2):
            return True
    except (OSError, urllib.error.URLError):
        return False
