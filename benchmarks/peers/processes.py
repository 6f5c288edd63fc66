"""A runner's process: started in a session of its own, stopped whenever it is not its turn.

Engines keep threads that may spin or answer heartbeats; a stopped process takes no core from the
one that is measured, whatever it would do.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.harness.starting import LoggedProcess
from benchmarks.peers.messages import Failed, Message, from_line, to_line

_END_S = 10.0


class RunnerProcess(LoggedProcess):
    """Every answer of a process that ended, or took too long, is Failed."""

    def __init__(
        self, command: Sequence[str], *, variables: Mapping[str, str], log: Path, timeout_s: float
    ) -> None:
        self.timeout_s = timeout_s
        self._buffer = b""
        everything = {**os.environ, **variables}
        super().__init__(command, variables=everything, log=log, has_pipes=True)

    def ask(self, message: Message) -> Message:
        """Wake the process, wait for its answer, stop it again."""
        self._signal(signal.SIGCONT)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(to_line(message).encode())
            self._process.stdin.flush()
            return from_line(self._read_line())
        except (OSError, EOFError, ValueError, subprocess.TimeoutExpired) as error:
            reason = f"{type(error).__name__}: {error}; the log ends with: {self.end_of_log()}"
            self._kill()
            return Failed(reason=reason)
        finally:
            self._signal(signal.SIGSTOP)

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + self.timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(deadline - time.monotonic(), 0.0)):
                    raise TimeoutError(f"no answer in {self.timeout_s:g} s")
                part = os.read(self._process.stdout.fileno(), 1 << 20)
                if not part:
                    raise EOFError(f"the runner ended with status {self._process.wait(_END_S)}")
                self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def cpu_seconds(self) -> float:
        """Of the process and its children, until now."""
        return self.cpu_by_kind().total()

    def resident_bytes(self) -> int:
        return sum(member.memory_info().rss for member in self.members())

    def close(self) -> None:
        """End the process and its children: by the end of its input, else by force."""
        if self._closed:
            return
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._kill()
