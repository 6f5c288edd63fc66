"""Servers are started once, waited for, and ended: by their own doing or by force."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.harness.ports import free_port, is_up
from benchmarks.harness.processes import below
from benchmarks.harness.starting import ServerProcess
from specdec_core.errors import SpecdecError

SERVER = """
import signal, sys
from http.server import HTTPServer, SimpleHTTPRequestHandler

signal.signal(signal.SIGINT, signal.default_int_handler)
HTTPServer(("127.0.0.1", int(sys.argv[1])), SimpleHTTPRequestHandler).serve_forever()
"""
"""Where a shell began the tests in the background, Python itself leaves SIGINT alone."""
DEAF = """
import signal, sys

signal.signal(signal.SIGINT, signal.SIG_IGN)
open(sys.argv[1], "w").close()
signal.pause()
"""


NEVER_READY = """
import signal, time

signal.signal(signal.SIGINT, signal.default_int_handler)
time.sleep(60)
"""


def start(script: str, *arguments: object, log: Path | None = None) -> ServerProcess:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return ServerProcess(command, dict(os.environ), log)


@pytest.mark.parametrize("has_log", [True, False])
def test_a_server_is_ready_once_it_answers_and_ends_as_by_ctrl_c(
    has_log: bool, tmp_path: Path
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    process = start(SERVER, port, log=tmp_path / "log" if has_log else None)
    assert process.wait_until_ready(url, 30.0) > 0
    assert process.pid in {child.pid for child in below(os.getpid())}
    assert (os.getsid(process.pid) == process.pid) == has_log
    assert process.resident_mib() > 1
    process.end(30.0)
    assert process.wait(0) != 0, "Python's KeyboardInterrupt"
    assert process.members() == []
    assert not is_up(url)


@pytest.mark.parametrize("has_log", [True, False])
def test_a_server_that_does_not_end_in_time_is_ended_by_force(
    has_log: bool, tmp_path: Path
) -> None:
    is_deaf = tmp_path / "deaf"
    process = start(DEAF, is_deaf, log=tmp_path / "log" if has_log else None)
    while not is_deaf.exists():
        assert process.members()
        time.sleep(0.05)
    with pytest.raises(SpecdecError, match=r"did not end within 0.2 s"):
        process.end(0.2)
    assert not psutil.pid_exists(process.pid)


def test_a_server_that_ends_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    process = start("print('no such model'); raise SystemExit(3)", log=tmp_path / "log")
    with pytest.raises(SpecdecError, match=r"status 3.*no such model"):
        process.wait_until_ready("http://127.0.0.1:1/health", 30.0)
    process.close()


def test_a_server_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    process = start(NEVER_READY, log=tmp_path / "log")
    with pytest.raises(SpecdecError, match=r"not ready after 0.3 s"):
        process.wait_until_ready("http://127.0.0.1:1/health", 0.3)
    process.close()
    assert process.members() == []
