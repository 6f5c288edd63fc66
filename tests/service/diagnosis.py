"""What a test that fails tells of the service it asked: CI shows nothing else of it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.harness.processes import MIB, below, kind_of, title_of

_NUM_LINES = 15
"""Of each log; a report of CI is short."""
_NUM_CHARACTERS = 240
"""Of each line."""
_SESSION = re.compile(r"/\S+/session_[0-9-_]+\d")
"""Ray's folder, as its processes name it."""


def told() -> str:
    """Processes, memory, what Serve says of its deployments, and the ends of its logs; as far as
    it can still be asked."""
    lines = [_machine()]
    for part in (_processes, _deployments, _logs):
        try:
            lines += part()
        except Exception as error:
            lines.append(repr(error))
    return "\n".join(line[:_NUM_CHARACTERS] for line in lines)


def _machine() -> str:
    memory = psutil.virtual_memory()
    return (
        f"{time.strftime('%X')}: {memory.available // MIB} of {memory.total // MIB} MiB are free, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _processes() -> Iterator[str]:
    for process in below(os.getpid()):
        title = title_of(process)
        with suppress(psutil.NoSuchProcess):
            if kind_of(title) is not None:
                age_s = time.time() - process.create_time()
                times = process.cpu_times()
                yield (
                    f"{process.pid} {title.split()[0]} {process.status()}, {age_s:.0f} s old, "
                    f"{times.user + times.system:.0f} s of CPU, "
                    f"{process.memory_info().rss // MIB} MiB"
                )


def _deployments() -> Iterator[str]:
    from ray import serve

    for application in serve.status().applications.values():
        for name, deployment in application.deployments.items():
            states = {str(state): number for state, number in deployment.replica_states.items()}
            yield f"{name}: {deployment.status}, {states} {deployment.message}"


def _logs() -> Iterator[str]:
    """Of Serve's controller and of the targets that wrote last; what Ray's node complains of."""
    found = _SESSION.search(" ".join(map(title_of, below(os.getpid()))))
    if found is None:
        return
    folder = Path(found[0]) / "logs"
    yield from _last_lines(folder.glob("serve/controller_*.log"), 1)
    yield from _last_lines(folder.glob("serve/replica_*target*.log"), 2)
    yield from _last_lines(folder.glob("raylet.out"), 1, of=(" W ", " E "))


def _last_lines(
    paths: Iterable[Path], num_files: int, of: tuple[str, ...] = ("",)
) -> Iterator[str]:
    """Of the files that were written last, behind each one's name; lines with one of `of`."""
    for path in sorted(paths, key=lambda path: path.stat().st_mtime)[-num_files:]:
        lines = [line for line in path.read_text().splitlines() if any(map(line.__contains__, of))]
        yield from (str(path), *lines[-_NUM_LINES:])
