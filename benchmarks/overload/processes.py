"""What the processes of a service hold: memory, files and threads, by what each process is."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_TITLE = "ray::ServeReplica:specdec:"
_ACTORS = {
    "ray::ProxyActor": "proxy",
    "ray::Coordinator": "coordinator",
    "ray::ServeController": "controller",
}
OTHER = "ray itself"
MIB = 2**20
_LASTING_S = 0.25
"""A thread that lives less long is not counted: every process of Ray starts one for each export of
its metrics, every 10 s, which may be just when somebody looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Of all processes of a kind together."""

    num_processes: int = 0
    pss_mib: float = 0.0
    """Resident, what is shared with others divided among them."""
    anon_mib: float = 0.0
    """Resident and no file's: other processes of the machine do not move it."""
    num_files: int = 0
    num_threads: int = 0

    def __add__(self, other: Held) -> Held:
        mine, theirs = asdict(self), asdict(other)
        return Held(**{name: value + theirs[name] for name, value in mine.items()})


def kind_of(command: str) -> str:
    """What a process is, by its title."""
    if command.startswith(_TITLE):
        return re.split(r"[:. ]", command.removeprefix(_TITLE))[0]
    return next((kind for title, kind in _ACTORS.items() if command.startswith(title)), OTHER)


def held_by_kind(root_pid: int) -> dict[str, Held]:
    """Of the processes below `root_pid`."""
    found: dict[str, Held] = {}
    threads = {process: _threads(process.pid) for process in _children(root_pid)}
    time.sleep(_LASTING_S)
    for process, earlier in threads.items():
        try:
            kind, held = kind_of(" ".join(process.cmdline())), _held(process, earlier)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError, ValueError):
            continue
        found[kind] = found.get(kind, Held()) + held
    return dict(sorted(found.items()))


def pids_of(root_pid: int, kind: str) -> list[int]:
    return [
        process.pid
        for process in _children(root_pid)
        if kind_of(" ".join(process.cmdline())) == kind
    ]


def cpu_seconds(root_pid: int) -> dict[str, float]:
    """Used so far, by kind."""
    found: dict[str, float] = {}
    for process in _children(root_pid):
        try:
            kind, times = kind_of(" ".join(process.cmdline())), process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        found[kind] = found.get(kind, 0.0) + times.user + times.system
    return found


def ours(held: Mapping[str, Held]) -> Held:
    """Of the kinds that serve: what Ray itself starts and ends as it likes is left out."""
    return sum((each for kind, each in held.items() if kind != OTHER), Held())


def _children(root_pid: int) -> Iterator[psutil.Process]:
    try:
        yield from psutil.Process(root_pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return


def _anonymous(pid: int) -> int:
    """As the kernel tells it, in KiB; psutil does not."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return 1024 * int(size)


def _threads(pid: int) -> frozenset[str]:
    """Their numbers; none of a process that is gone."""
    try:
        return frozenset(task.name for task in Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return frozenset()


def _held(process: psutil.Process, earlier: frozenset[str]) -> Held:
    return Held(
        num_processes=1,
        pss_mib=process.memory_full_info().pss / MIB,
        anon_mib=_anonymous(process.pid) / MIB,
        num_files=process.num_fds(),
        num_threads=len(earlier & _threads(process.pid)),
    )
