"""Runs the audit's replays: requests in the scheduler whose client is the auditor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from deployments.coordinator.audit import Auditor
from specdec_core.errors import InvalidRequestError
from specdec_core.request import TokenEvent
from specdec_core.scheduler import Scheduler

logger = logging.getLogger(__name__)

PassOn = Callable[[Callable[[float], object]], None]
"""Calls the function with the time, unless the scheduler has failed. Raises SpecdecError."""


class AuditReplays:
    """Begins replays, compares their tokens, and gives them up."""

    def __init__(self, auditor: Auditor, pool: Scheduler, pass_on: PassOn) -> None:
        self.auditor = auditor
        self._pool = pool
        self._pass_on = pass_on

    def begin(self) -> None:
        """Begin replays of finished requests. The scheduler serves them after every client's
        request."""
        while (replay := self.auditor.next_replay()) is not None:
            try:
                self._pass_on(partial(self._pool.add, replay))
            except InvalidRequestError:  # the targets have changed since
                self.auditor.skip(replay.request_id)

    def hear(self, event: TokenEvent) -> bool:
        """Compare an event of a replay. Return False if the event is a client's."""
        if not self.auditor.is_replay(event.request_id):
            return False
        divergence = self.auditor.compare(event)
        if divergence is not None:
            divergence.log(logger)
        if event.finish_reason is None and not self.auditor.is_replay(event.request_id):
            self._pass_on(partial(self._pool.abort, event.request_id))
        return True

    def drop(self) -> None:
        """Give up all replays, so that they do not delay a replica that is about to leave."""
        for replay_id in self.auditor.drop():
            self._pass_on(partial(self._pool.abort, replay_id))
