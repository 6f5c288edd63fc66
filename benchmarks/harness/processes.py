"""The processes of a service: children of `specdec serve`, to which Ray gives titles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum

import psutil

MIB = 2**20


class Kind(StrEnum):
    """What a process of a service is."""

    TARGET = "target"
    DRAFT = "draft"
    COORDINATOR = "coordinator"
    INGRESS = "ingress"
    CONTROLLER = "controller"
    """Serve's."""
    PROXY = "proxy"
    """Serve's, of HTTP and gRPC."""


REPLICA = "ray::ServeReplica:specdec:"
TITLES = {
    Kind.TARGET: f"{REPLICA}target",
    Kind.DRAFT: f"{REPLICA}draft",
    Kind.COORDINATOR: "ray::Coordinator",
    Kind.INGRESS: f"{REPLICA}ingress",
    Kind.CONTROLLER: "ray::ServeController",
    Kind.PROXY: "ray::ProxyActor",
}
"""How they begin."""
_NAMED = ("ray::", "VLLM::")
"""Processes that name themselves: their program says nothing."""

Pids = dict[Kind, tuple[int, ...]]


def below(pid: int) -> list[psutil.Process]:
    """Children, their children and so on; none once the process has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def title_of(process: psutil.Process) -> str:
    """Its whole command line; empty once it has ended."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return " ".join(process.cmdline())
    return ""


def kind_of(title: str) -> Kind | None:
    """None: Ray's own, or none of a service's."""
    return next((kind for kind, start in TITLES.items() if title.startswith(start)), None)


def name_of(process: psutil.Process) -> str:
    """Its title without the method that it runs just now, or its program."""
    name = title_of(process).partition(" ")[0]
    return name.partition(".")[0] if name.startswith(_NAMED) else process.name()


def kind_or_name(process: psutil.Process) -> str:
    name = name_of(process)
    return kind_of(name) or name


def pids_by_kind(pid: int) -> Pids:
    """Those below `pid` that live, a stopped one too; ascending."""
    kinds = {process.pid: kind_of(title_of(process)) for process in below(pid)}
    return {kind: tuple(sorted(p for p in kinds if kinds[p] is kind)) for kind in Kind}


def cpu_seconds(
    processes: Iterable[psutil.Process], called: Callable[[psutil.Process], str]
) -> Counter[str]:
    """User and system time so far of those that live, by what each is called."""
    spent: Counter[str] = Counter()
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            spent[called(process)] += times.user + times.system
    return spent
