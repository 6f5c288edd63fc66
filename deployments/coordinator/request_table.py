"""Table of live requests: which ingress stream receives each request's events."""

from __future__ import annotations

from collections.abc import KeysView

from deployments.coordinator.audit import Origin
from deployments.coordinator.audit_replays import AuditReplays
from deployments.coordinator.quotas import ClientQuotas
from deployments.coordinator.streams import Delivery, IngressOutbox
from deployments.errors import Failure
from deployments.observability.metrics.request_totals import RequestTotals
from deployments.observability.tracing.scheduler_spans import SchedulerSpans
from specdec_core.request import FinishReason, Request, TokenEvent


class RequestTable:
    """The ingress stream of every live request, and the records that are kept with a request."""

    def __init__(
        self,
        ledger: ClientQuotas,
        spans: SchedulerSpans,
        requests: RequestTotals,
        replays: AuditReplays,
    ) -> None:
        self._ledger = ledger
        self._spans = spans
        self._requests = requests
        self._replays = replays
        self._outboxes: dict[str, IngressOutbox] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._outboxes

    def keys(self) -> KeysView[str]:
        return self._outboxes.keys()

    def keys_of(self, outbox: IngressOutbox) -> list[str]:
        return [key for key, owner in self._outboxes.items() if owner is outbox]

    def begin(
        self, outbox: IngressOutbox, request: Request, now: float, *, is_resumed: bool
    ) -> None:
        """Add a request. Raises ClientLimitError; the caller must then call `forget`, too."""
        request_id = request.request_id
        self._outboxes[request_id] = outbox
        self._ledger.begin(request, now, is_resumed=is_resumed)
        self._replays.auditor.watch(request)

    def forget(self, request_id: str) -> None:
        """Remove a request that has ended, or has not begun."""
        del self._outboxes[request_id]
        self._spans.end(request_id)
        self._ledger.end(request_id)
        self._replays.auditor.forget(request_id)

    def deliver(self, event: TokenEvent, origin: Origin | None) -> None:
        """Deliver an event to its request's ingress. `origin` names the present targets."""
        outbox = self._outboxes.get(event.request_id)
        if outbox is None:
            return
        self._replays.auditor.hear(event, origin)
        self._ledger.hear(event)
        if event.finish_reason is not None:
            self._spans.end(event.request_id, event)
            self.forget(event.request_id)
        is_error = event.finish_reason is FinishReason.ERROR
        outbox.put(Delivery(event, self._requests.failed(event) if is_error else None))

    def fail_all(self, failure: Failure) -> None:
        """End every request with `failure`; no event of any request follows."""
        for request_id, outbox in self._outboxes.items():
            told = Delivery.failed(request_id, failure)
            outbox.put(told)
            self._spans.end(request_id, told.event)
        self._outboxes.clear()
