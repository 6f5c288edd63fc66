"""The real scheduler, with a watcher that sees every command and every result in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from specdec_core.config import SchedulerConfig
from specdec_core.messages import GroupResult
from specdec_core.request import Request
from specdec_core.scheduler import Command, Scheduler


class Watcher(Protocol):
    """Observer of a scheduler. Its methods raise Violation."""

    def added(self, request: Request, now: float) -> None:
        """An attempt of a request begins; an older one is over."""
        ...

    def commanded(self, scheduler: Scheduler, commands: list[Command], now: float) -> None: ...

    def gone(self, replica_id: str) -> None:
        """The replica has been deregistered, or is about to register again."""
        ...

    def forgot(self, replica_id: str) -> None:
        """A replica has acknowledged its reset."""
        ...

    def result(
        self, scheduler: Scheduler, result: GroupResult, pass_on: Callable[[], None], now: float
    ) -> None:
        """A result has come. `pass_on` passes it to the scheduler."""
        ...


class WatchedPool(Scheduler):
    """A scheduler that reports to a watcher, and changes nothing else."""

    def __init__(self, config: SchedulerConfig, *, epoch: int, watcher: Watcher) -> None:
        super().__init__(config, epoch=epoch)
        self._watcher = watcher

    def add(self, request: Request, now: float) -> None:
        super().add(request, now)
        self._watcher.added(request, now)

    def advance(self, now: float) -> list[Command]:
        commands = super().advance(now)
        self._watcher.commanded(self, commands, now)
        return commands

    def on_result(self, result: GroupResult, now: float) -> None:
        pass_on = super().on_result
        self._watcher.result(self, result, lambda: pass_on(result, now), now)

    def deregister(self, replica_id: str, now: float, *, incarnation: int | None = None) -> None:
        super().deregister(replica_id, now, incarnation=incarnation)
        if self._replicas.by_id.get(replica_id) is None:
            self._watcher.gone(replica_id)

    def on_reset_done(self, replica_id: str, incarnation: int, now: float) -> None:
        super().on_reset_done(replica_id, incarnation, now)
        replica = self._replicas.by_id.get(replica_id)
        if replica is not None and replica.info.incarnation == incarnation:
            self._watcher.forgot(replica_id)
