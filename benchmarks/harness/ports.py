"""Ports of this machine. Runners in other environments import this file: standard library only."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy for the outer world does not know this machine's ports."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_up(url: str) -> bool:
    """Whether a server is up there and well."""
    try:
        with _OPENER.open(url, timeout=2):
            return True
    except (OSError, urllib.error.URLError):
        return False
