"""Table of live requests: which ingress stream receives each request's events."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, KeysView
from typing import Any, NamedTuple

from deployments.coordinator.streams import IngressOutbox
from deployments.errors import Failure, FailureKind, failure_of, failure_of_event
from deployments.observability.request_observer import (
    EndReason,
    LiveRequest,
    RequestEnd,
    RequestObserver,
)
from deployments.wire.counter_names import FAILED, REJECTED
from specdec_core.request import FinishReason, TokenEvent

logger = logging.getLogger(__name__)

_Calls = tuple[Callable[..., Any], ...]


class _Entry(NamedTuple):
    outbox: IngressOutbox
    live: LiveRequest


class RequestTable:
    """The ingress stream of every live request, and the totals of requests since the coordinator's
    start. Each change of a request reaches the observers."""

    def __init__(self, observers: Iterable[RequestObserver], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        observers = tuple(observers)
        self._begin = _overridden(observers, "begin")
        self._event = _overridden(observers, "event")
        self._end = _overridden(observers, "end")
        self._refused = _overridden(observers, "refused")
        self._counters = _overridden(observers, "counters")
        self._num_errors = 0
        self._num_prompt_tokens = 0
        self._rejected: Counter[FailureKind] = Counter()
        self._failed: Counter[FailureKind] = Counter()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    def counters(self) -> dict[str, int]:
        """Return the totals and the counters of all observers, by their names in PoolStatus."""
        found = {"num_prompt_tokens": self._num_prompt_tokens}
        found |= {f"{REJECTED}{kind}": count for kind, count in self._rejected.items()}
        found |= {f"{FAILED}{kind}": count for kind, count in self._failed.items()}
        for counters in self._counters:
            try:
                found |= counters()
            except Exception:
                self._log_error(counters)
        return found

    def keys(self) -> KeysView[str]:
        return self._entries.keys()

    def keys_of(self, outbox: IngressOutbox) -> list[str]:
        return [key for key, entry in self._entries.items() if entry.outbox is outbox]

    def begin(self, outbox: IngressOutbox, live: LiveRequest) -> None:
        """Add a request that the scheduler has queued. An older attempt ends here."""
        request = live.request
        if request.request_id in self._entries:
            self.drop(request.request_id, EndReason.REPLACED)
        self._entries[request.request_id] = _Entry(outbox, live)
        if not live.is_resumed:
            self._num_prompt_tokens += len(request.prompt_token_ids)
        self._tell(self._begin, live)

    def refuse(self, outbox: IngressOutbox, request_id: str, error: Exception) -> None:
        """Tell an ingress that a request did not begin."""
        failure = failure_of(error)
        outbox.fail(request_id, failure)
        self._rejected[failure.kind] += 1
        self._tell(self._refused, request_id, failure)

    def drop(self, request_id: str, reason: EndReason) -> None:
        """End a request, if it is live, without an event for its ingress."""
        entry = self._entries.pop(request_id, None)
        if entry is not None:
            self._tell(self._end, entry.live, RequestEnd(reason, self._clock()))

    def deliver(self, event: TokenEvent, now: float) -> bool:
        """Deliver an event to its request's ingress. Return False if the request is not live."""
        entry = self._entries.get(event.request_id)
        if entry is None:
            return False
        outbox, live = entry
        failure = self._failure_of(event) if event.finish_reason is FinishReason.ERROR else None
        outbox.put(event, failure)  # first, so that no observer can lose an answer
        for call in self._event:  # not by `_tell`, which takes 0.1 us longer for each event
            try:
                call(live, event, now)
            except Exception:
                self._log_error(call)
        if event.finish_reason is not None:
            del self._entries[event.request_id]
            self._tell(self._end, live, RequestEnd(EndReason.FINISHED, now, event, failure))
        return True

    def _failure_of(self, event: TokenEvent) -> Failure:
        """Return the failure that ends a request, and count it."""
        failure = failure_of_event(event)
        self._failed[failure.kind] += 1
        return failure

    def fail_all(self, failure: Failure) -> None:
        """End every request with `failure`; no event of any request follows."""
        entries, self._entries = self._entries, {}
        for request_id, (outbox, live) in entries.items():
            last = outbox.fail(request_id, failure)
            end = RequestEnd(EndReason.SCHEDULER_FAILED, self._clock(), last, failure)
            self._tell(self._end, live, end)

    def _tell(self, calls: _Calls, *told: object) -> None:
        """Make the calls. An observer's error is logged and changes nothing else."""
        for call in calls:
            try:
                call(*told)
            except Exception:
                self._log_error(call)

    def _log_error(self, call: Callable[..., Any]) -> None:
        """Log the error that is handled now, if it is the first, second, fourth, eighth ... one. An
        observer that fails at each event must not fill the log."""
        self._num_errors += 1
        if self._num_errors & (self._num_errors - 1) == 0:
            name = getattr(call, "__qualname__", call)
            logger.exception("request observer %s failed: error %d", name, self._num_errors)


def _overridden(observers: Iterable[RequestObserver], name: str) -> _Calls:
    """Return one method of each observer that overrides it: an event costs no empty calls."""
    base = getattr(RequestObserver, name)
    return tuple(getattr(one, name) for one in observers if getattr(type(one), name) is not base)
