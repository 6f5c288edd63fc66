"""The processes of a service, by kind: children of `specdec serve` that Ray gives titles."""

from __future__ import annotations

import contextlib
from enum import StrEnum

import psutil


class Kind(StrEnum):
    """What may die."""

    TARGET = "target"
    DRAFT = "draft"
    COORDINATOR = "coordinator"
    INGRESS = "ingress"
    CONTROLLER = "controller"
    """Serve's."""
    PROXY = "proxy"
    """Serve's, of HTTP and gRPC."""


_TITLES = {
    Kind.TARGET: "ray::ServeReplica:specdec:target",
    Kind.DRAFT: "ray::ServeReplica:specdec:draft",
    Kind.COORDINATOR: "ray::Coordinator",
    Kind.INGRESS: "ray::ServeReplica:specdec:ingress",
    Kind.CONTROLLER: "ray::ServeController",
    Kind.PROXY: "ray::ProxyActor",
}

Pids = dict[Kind, tuple[int, ...]]


class ServiceProcesses:
    """The service that `pid` started."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def all(self) -> list[psutil.Process]:
        return [self._root, *self._root.children(recursive=True)]

    def by_kind(self) -> Pids:
        """Those that live, a stopped one too; ascending."""
        found: dict[Kind, list[int]] = {kind: [] for kind in Kind}
        for process in self._root.children(recursive=True):
            kind = _kind(process)
            if kind is not None:
                found[kind].append(process.pid)
        return {kind: tuple(sorted(pids)) for kind, pids in found.items()}


def _kind(process: psutil.Process) -> Kind | None:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        title = " ".join(process.cmdline())
        return next((kind for kind, start in _TITLES.items() if title.startswith(start)), None)
    return None
