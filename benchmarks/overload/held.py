"""What the processes of a service hold: memory, files and threads, by what each process is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.harness.processes import MIB, below, kind_of, title_of

OTHER = "ray itself"
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


def kind_or_other(process: psutil.Process) -> str:
    return kind_of(title_of(process)) or OTHER


def held_by_kind(root_pid: int) -> dict[str, Held]:
    """Of the processes below `root_pid`."""
    found: dict[str, Held] = {}
    threads = {process: _threads(process.pid) for process in below(root_pid)}
    time.sleep(_LASTING_S)
    for process, earlier in threads.items():
        try:
            kind, held = kind_or_other(process), _held(process, earlier)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError, ValueError):
            continue
        found[kind] = found.get(kind, Held()) + held
    return dict(sorted(found.items()))


def ours(held: Mapping[str, Held]) -> Held:
    """Of the kinds that serve: what Ray itself starts and ends as it likes is left out."""
    return sum((each for kind, each in held.items() if kind != OTHER), Held())


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
