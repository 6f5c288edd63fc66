"""`specdec serve` as `make serve` starts it, for all tests that ask it something."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.harness.ports import free_port
from benchmarks.harness.starting import SERVE

START_S = 150
"""A Ray, a model and a proxy start within this on two busy cores."""


class DemoService(NamedTuple):
    """Its ports."""

    http: int
    grpc: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    @property
    def grpc_address(self) -> str:
        return f"127.0.0.1:{self.grpc}"


@contextlib.contextmanager
def serve(log: Path) -> Iterator[DemoService]:
    """On other ports, and with one thread, as other tests run beside it; Ctrl-C ends it well."""
    service = DemoService(free_port(), free_port())
    flags = ["--port", str(service.http), "--grpc-port", str(service.grpc)]
    environment = os.environ | {"SPECDEC_TORCH_THREADS": "1"}
    with (
        log.open("w") as out,
        subprocess.Popen([*SERVE, *flags], stdout=out, stderr=out, env=environment) as run,
    ):
        try:
            line = _ready_line(run, log)
            assert service.url in line
            yield service
        finally:
            run.send_signal(signal.SIGINT)
            status = run.wait(timeout=60)
    assert status == 0, log.read_text()
    assert log.read_text().partition(line)[2] == "\ndraining\n"


def _ready_line(run: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(START_S):
        if found := re.search(r"^Ready:.*", log.read_text(), flags=re.MULTILINE):
            return found.group()
        try:
            run.wait(timeout=1)
        except subprocess.TimeoutExpired:
            continue
        break
    pytest.fail(f"specdec serve printed no ready line:\n{log.read_text()}")
