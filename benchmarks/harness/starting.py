"""Starts a server in processes of its own, waits until it is ready, and ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psutil

from benchmarks.harness.ports import is_up
from benchmarks.harness.processes import MIB, cpu_seconds, kind_or_name
from deployments.config.service import ServiceConfig
from specdec_core.errors import SpecdecError

SERVE = (sys.executable, "-c", "from deployments.cli.main import main; main()", "serve")
"""`specdec serve` of this checkout."""
_LIMIT_S = 300.0
"""Of a start, and of an end beyond what a service waits for its requests."""
_POLL_S = 0.1
_END_S = 60.0
_LOG_LINES = 5


class LoggedProcess:
    """A process in a session of its own, what it prints in a file; `variables` are all it has.

    Without a file it prints where this process does, and is in the same session: what ends this
    process's group ends it too.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str],
        log: Path | None,
        has_pipes: bool = False,
    ) -> None:
        self._log = log
        self._closed = False
        pipe = subprocess.PIPE if has_pipes else None
        with nullcontext() if log is None else log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or output,
                stderr=output,
                env=dict(variables),
                start_new_session=log is not None,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float) -> int:
        """Its status at its end. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    def end_of_log(self) -> str:
        if self._log is None:
            return "above"
        lines = self._log.read_text(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-_LOG_LINES:])

    def members(self) -> list[psutil.Process]:
        """The process and all below it; none once it has ended."""
        if self._process.poll() is not None:
            return []
        process = psutil.Process(self._process.pid)
        return [process, *process.children(recursive=True)]

    def cpu_by_kind(self) -> Counter[str]:
        """Seconds used so far by the processes that live, by what each is."""
        return cpu_seconds(self.members(), kind_or_name)

    def _signal(self, number: int) -> None:
        if not self._closed:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._closed = True


class ServerProcess(LoggedProcess):
    """A server's processes: from the start of the first to the end of the last."""

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], log: Path | None = None
    ) -> None:
        self._started_s = time.monotonic()
        super().__init__(command, variables=variables, log=log)

    def wait_until_ready(self, url: str, timeout_s: float) -> float:
        """Seconds from the start to the first answer of `url` that is well. Raises SpecdecError."""
        while (passed_s := time.monotonic() - self._started_s) < timeout_s:
            if self._process.poll() is not None:
                status = self._process.returncode
                raise SpecdecError(f"it ended with status {status}; its log: {self.end_of_log()}")
            if is_up(url):
                return passed_s
            time.sleep(_POLL_S)
        raise SpecdecError(f"not ready after {timeout_s:g} s; its log: {self.end_of_log()}")

    def resident_mib(self) -> float:
        """Of all its processes: what they share is counted once (PSS)."""
        total = 0
        for process in self.members():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_full_info().pss
        return total / MIB

    def end(self, timeout_s: float) -> None:
        """As Ctrl-C does; what outlives its first process stays. Raises SpecdecError, and ends all
        by force, where the first does not end in time."""
        members = self.members()
        self._process.send_signal(signal.SIGINT)
        try:
            self.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            _kill(members)
            self._process.wait()
            raise SpecdecError(f"it did not end within {timeout_s:g} s") from error

    def close(self) -> None:
        """As Ctrl-C does, and by force what is left of it after a minute."""
        if self._closed:
            return
        members = self.members()
        self._process.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(members, timeout=_END_S)
        _kill(alive)
        self._kill()


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def serve_variables(config: ServiceConfig) -> dict[str, str]:
    """Return this process's variables, and those that give `specdec serve` its settings."""
    settings = {f"SPECDEC_{name}".upper(): str(v) for name, v in config.deployable().items()}
    return os.environ | settings


@contextmanager
def service(config: ServiceConfig) -> Iterator[ServerProcess]:
    """Ready inside; what it is still busy with at the end it may finish. Raises SpecdecError where
    it does not start or does not end."""
    process = ServerProcess(SERVE, serve_variables(config))
    try:
        process.wait_until_ready(f"http://127.0.0.1:{config.port}/ready", _LIMIT_S)
        yield process
    finally:
        process.end(config.graceful_shutdown_s + _LIMIT_S)
