"""A server's processes: from the start of the first to the end of the last."""

from __future__ import annotations

import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.overload.processes import MIB, OTHER, kind_of
from benchmarks.peers.processes import LoggedProcess
from specdec_core.errors import SpecdecError

_POLL_S = 0.1
_END_S = 60.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy for the outer world does not know this machine's ports."""


class ServerProcess(LoggedProcess):
    """Started at once; `variables` are all that it gets."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        self._started_s = time.monotonic()
        super().__init__(command, variables=variables, log=log)

    def wait_until_ready(self, url: str, timeout_s: float) -> float:
        """Seconds from the start to the first answer of `url` that is well. Raises SpecdecError."""
        while (passed_s := time.monotonic() - self._started_s) < timeout_s:
            if self._process.poll() is not None:
                status = self._process.returncode
                raise SpecdecError(f"it ended with status {status}; its log: {self.end_of_log()}")
            if _answers(url):
                return passed_s
            time.sleep(_POLL_S)
        raise SpecdecError(f"not ready after {timeout_s:g} s; its log: {self.end_of_log()}")

    def cpu_by_kind(self) -> Counter[str]:
        """Seconds used so far by the processes that live, by what each is."""
        found: Counter[str] = Counter()
        for process in self.members():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                found[process_kind(process)] += times.user + times.system
        return found

    def resident_mib(self) -> float:
        """Of all its processes: what they share is counted once (PSS)."""
        total = 0
        for process in self.members():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_full_info().pss
        return total / MIB

    def close(self) -> None:
        """As Ctrl-C does, and by force what is left of it after a minute."""
        if self._closed:
            return
        members = self.members()
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(members, timeout=_END_S)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._kill()


def process_kind(process: psutil.Process) -> str:
    """A replica's kind, or the name that a process gives itself."""
    title = " ".join(process.cmdline())
    known = kind_of(title)
    if known != OTHER:
        return known
    return title.split()[0] if title.startswith(("ray::", "VLLM::")) else process.name()


def _answers(url: str) -> bool:
    try:
        with _OPENER.open(url, timeout=2):
            return True
    except (OSError, urllib.error.URLError):
        return False
