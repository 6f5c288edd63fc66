"""The running service's audit: replays finished requests without speculation, and compares them.

A replay is the same request without speculation, in the background of the scheduler, under an ID
that no client knows. `Auditor` is pure: its input is requests and token events, its output is
replays and findings. `AuditReplays` runs the replays.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from deployments.observability.json_logs import about
from deployments.observability.request_observer import LiveRequest, RequestEnd, RequestObserver
from deployments.wire.counter_names import AUDITED, DIVERGED
from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.scheduler import Scheduler

logger = logging.getLogger(__name__)

MAX_RUNNING = 2
"""Maximum replays at a time. Each takes a row of its target's batches while slots are free."""
MAX_WAITING = 64
"""Maximum finished requests kept for later; any more are skipped."""

PassOn = Callable[[Callable[[float], object]], None]
"""Calls the function with the time, unless the scheduler has failed. Raises SpecdecError."""


def new_replay_id() -> str:
    return f"audit-{uuid.uuid4().hex}"


class Origin(NamedTuple):
    """The targets that a request ran on."""

    numerics: Numerics
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first token of a replay that is not the emitted one."""

    request_id: str
    index: int
    """Index of the token among the emitted tokens."""
    emitted_id: int
    replayed_id: int | None
    """Token that the replay chose; None if the replay ended here."""
    origin: Origin

    def log(self, logger: logging.Logger) -> None:
        """Log the divergence, as an error for exact numerics, which promise that there is none."""
        logger.log(
            logging.ERROR if self.origin.numerics is Numerics.EXACT else logging.WARNING,
            "request %s diverges from plain decoding at token %d: emitted %d, replayed %s (%s, %s)",
            self.request_id,
            self.index,
            self.emitted_id,
            self.replayed_id,
            *self.origin,
            extra=about(self.request_id),
        )


@dataclass(eq=False, slots=True)
class AuditCounts:
    """Counts since the coordinator's start."""

    audited: Counter[Numerics] = field(default_factory=Counter)
    """Replays that were compared, to the end or to the first difference."""
    diverged: Counter[Numerics] = field(default_factory=Counter)
    num_skipped: int = 0
    """Sampled requests that were not compared."""


@dataclass(eq=False, slots=True)
class _Record:
    """A sampled request and everything that its client received."""

    request: Request
    token_ids: list[int]
    origin: Origin | None = None
    num_compared: int = 0


class Auditor(RequestObserver):
    """Tracks sampled requests from their start to the end of their replay."""

    def __init__(
        self,
        share: float,
        present_targets: Callable[[], Origin | None],
        *,
        max_running: int = MAX_RUNNING,
        max_waiting: int = MAX_WAITING,
        new_id: Callable[[], str] = new_replay_id,
    ) -> None:
        """`share` of the requests is sampled. `present_targets` returns the targets that choose
        tokens at this moment, or None if all are gone."""
        self.counts = AuditCounts()
        self._share = share
        self._present_targets = present_targets
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._new_id = new_id
        self._watched: dict[str, _Record] = {}
        self.waiting: deque[_Record] = deque()
        """Finished requests whose replay has not begun."""
        self._running: dict[str, _Record] = {}

    @property
    def num_pending(self) -> int:
        """Number of finished requests that have not been compared yet."""
        return len(self.waiting) + len(self._running)

    def counters(self) -> dict[str, int]:
        audited = {f"{AUDITED}{one}": count for one, count in self.counts.audited.items()}
        diverged = {f"{DIVERGED}{one}": count for one, count in self.counts.diverged.items()}
        return audited | diverged

    def begin(self, live: LiveRequest) -> None:
        request = live.request
        if self._share and is_sampled(request.request_id, self._share):
            self._watched[request.request_id] = _Record(request, list(request.emitted_token_ids))

    def event(self, live: LiveRequest, event: TokenEvent, now: float) -> None:
        record = self._watched.get(event.request_id)
        if record is not None:
            record.token_ids += event.token_ids

    def end(self, live: LiveRequest, end: RequestEnd) -> None:
        """Keep a sampled request for a replay, unless it failed or its client is gone."""
        record = self._watched.pop(live.request.request_id, None)
        if record is not None and record.token_ids and end.event is not None:
            self._keep(record, end.event)

    def _keep(self, record: _Record, last: TokenEvent) -> None:
        if last.finish_reason is FinishReason.ERROR:
            return
        record.origin = _origin(last, self._present_targets())
        if record.origin is None or len(self.waiting) == self._max_waiting:
            self.counts.num_skipped += 1
        else:
            self.waiting.append(record)

    def next_replay(self) -> Request | None:
        """Return the next replay to begin; None if nothing waits or `max_running` replays run."""
        if not self.waiting or len(self._running) == self._max_running:
            return None
        record = self.waiting.popleft()
        replay = _replay(record, self._new_id())
        self._running[replay.request_id] = record
        return replay

    def is_replay(self, request_id: str) -> bool:
        return request_id in self._running

    def compare(self, event: TokenEvent) -> Divergence | None:
        """Compare an event of a replay. Once `is_replay` is False, nothing is left to compare."""
        record = self._running[event.request_id]
        divergence = _first_difference(record, event)
        record.num_compared += len(event.token_ids)
        if divergence is not None or record.num_compared >= len(record.token_ids):
            self._count(event.request_id, divergence)
        elif event.finish_reason is not None:
            self.skip(event.request_id)
        return divergence

    def skip(self, replay_id: str) -> None:
        """Give up a replay that cannot be run, or not to its end."""
        del self._running[replay_id]
        self.counts.num_skipped += 1

    def drop(self) -> list[str]:
        """Give up every replay, begun or not. Return the IDs of those begun."""
        self.counts.num_skipped += self.num_pending
        begun = list(self._running)
        self._running.clear()
        self.waiting.clear()
        return begun

    def _count(self, replay_id: str, divergence: Divergence | None) -> None:
        origin = self._running.pop(replay_id).origin
        assert origin is not None, "only requests of known targets are replayed"
        self.counts.audited[origin.numerics] += 1
        self.counts.diverged[origin.numerics] += divergence is not None


class AuditReplays:
    """Runs replays: requests in the scheduler whose client is the auditor."""

    def __init__(self, auditor: Auditor, scheduler: Scheduler, pass_on: PassOn) -> None:
        self._auditor = auditor
        self._scheduler = scheduler
        self._pass_on = pass_on

    def begin(self) -> None:
        """Begin replays of finished requests. The scheduler serves them after every client's
        request."""
        while (replay := self._auditor.next_replay()) is not None:
            try:
                self._pass_on(partial(self._scheduler.add, replay))
            except InvalidRequestError:  # the targets have changed since
                self._auditor.skip(replay.request_id)

    def compare(self, event: TokenEvent) -> None:
        """Compare an event of a replay, and end the replay at its first difference. Events of other
        requests are ignored."""
        if not self._auditor.is_replay(event.request_id):
            return
        divergence = self._auditor.compare(event)
        if divergence is not None:
            divergence.log(logger)
        if event.finish_reason is None and not self._auditor.is_replay(event.request_id):
            self._pass_on(partial(self._scheduler.abort, event.request_id))

    def drop(self) -> None:
        """Give up all replays, so that they do not delay a replica that is about to leave."""
        for replay_id in self._auditor.drop():
            self._pass_on(partial(self._scheduler.abort, replay_id))


def _origin(last: TokenEvent, here: Origin | None) -> Origin | None:
    """Return the targets that chose a request's tokens; None if they are unknown. The event itself
    names exact targets, because the present ones may have started after the tokens were chosen."""
    if here is None:
        return None
    if last.pinned_fingerprint:
        return Origin(Numerics.EXACT, last.pinned_fingerprint)
    return here if here.numerics is Numerics.FAST else None


def is_sampled(request_id: str, share: float) -> bool:
    """Return True if a hash of the ID falls into `share`. The same requests are sampled in every
    life of a coordinator."""
    digest = hashlib.sha256(request_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def _replay(record: _Record, replay_id: str) -> Request:
    assert record.origin is not None, "only requests of known targets are replayed"
    is_exact = record.origin.numerics is Numerics.EXACT
    return replace(
        record.request,
        request_id=replay_id,
        params=replace(record.request.params, num_logprobs=None, num_prompt_logprobs=None),
        emitted_token_ids=(),
        resume_token_ids=(),
        speculation_enabled=False,
        num_draft_tokens=None,
        priority=0,
        cache_salt=replay_id,  # what the request left is what is to be checked
        is_background=True,
        timeout_s=None,
        pinned_fingerprint=record.origin.fingerprint if is_exact else "",
    )


def _first_difference(record: _Record, event: TokenEvent) -> Divergence | None:
    assert record.origin is not None, "only requests of known targets are replayed"
    expected = record.token_ids[record.num_compared :]
    replayed: list[int | None] = list(event.token_ids)
    if event.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
        replayed.append(None)
    for place, (emitted_id, replayed_id) in enumerate(zip(expected, replayed, strict=False)):
        if emitted_id != replayed_id:
            return Divergence(
                request_id=record.request.request_id,
                index=record.num_compared + place,
                emitted_id=emitted_id,
                replayed_id=replayed_id,
                origin=record.origin,
            )
    return None
