"""Counts and limits the running requests and the usage of each client (the name of an API key).

The coordinator keeps the counts, so that a limit holds for all ingress replicas together. With
several cells, each cell keeps its share of the limit. No Ray, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deployments.config.client_limits import ClientLimits
from deployments.errors import ClientLimitError
from deployments.observability.request_observer import LiveRequest, RequestEnd, RequestObserver
from deployments.wire.counter_names import CLIENT_CACHED, CLIENT_PROMPT
from specdec_core.request import Request, TokenEvent

_RETRY_S = 1.0
"""Retry hint in seconds if only the end of another request makes room."""
_MINUTE_S = 60.0


@dataclass(eq=False, slots=True)
class ClientUsage:
    """One client's totals since the coordinator began."""

    share: ClientLimits = field(default_factory=ClientLimits)
    num_requests: int = 0
    num_running: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens of ended requests that were cached."""
    num_tokens: int = 0
    """Tokens emitted."""
    num_drafted: int = 0
    num_accepted: int = 0
    allowance: float = field(default=0.0)
    """Requests that may come at the same time. It refills evenly, up to the requests of one
    minute. Not used without `requests_per_minute`."""
    refilled_at: float = 0.0

    @property
    def num_wasted(self) -> int:
        """Number of drafted tokens that were not accepted."""
        return self.num_drafted - self.num_accepted


class ClientQuotas(RequestObserver):
    """Admits requests within their client's limits, and counts what they use.

    A resumed request does not count as a new one.
    """

    def __init__(self, limits: ClientLimits | None = None) -> None:
        self.usage: dict[str, ClientUsage] = {}
        self._limits = limits or ClientLimits()

    def admit(self, request: Request, now: float, *, is_resumed: bool) -> None:
        """Charge a submission to its client. Raises ClientLimitError if the client has no room."""
        client = request.client
        usage = self.usage.get(client)
        if usage is None:
            usage = self.usage[client] = self._fresh(client, now)
        if is_resumed:
            return
        most, rate = usage.share.max_concurrent, usage.share.requests_per_minute
        if most is not None and usage.num_running >= most:
            raise self._too_many_running(client, usage.num_running, most)
        if rate is not None:
            self._use_allowance(client, usage, rate, now)
        usage.num_requests += 1
        usage.num_prompt_tokens += len(request.prompt_token_ids)

    def _too_many_running(self, client: str, num_running: int, most: int) -> ClientLimitError:
        return ClientLimitError(
            f"{client!r} has {num_running} requests running{self._here}, "
            f"the limit{self._here} is {most}",
            _RETRY_S if most else _MINUTE_S,
        )

    def _use_allowance(self, client: str, usage: ClientUsage, rate: int, now: float) -> None:
        """Refill the allowance at `rate` requests per minute, and take one request from it. Raises
        ClientLimitError if it has none."""
        per_second = rate / _MINUTE_S
        refilled = usage.allowance + (now - usage.refilled_at) * per_second
        usage.allowance, usage.refilled_at = min(float(rate), refilled), now
        if usage.allowance < 1.0:
            raise ClientLimitError(
                f"{client!r} has sent more than {rate} requests a minute{self._here}",
                (1.0 - usage.allowance) / per_second if rate else _MINUTE_S,
            )
        usage.allowance -= 1.0

    def begin(self, live: LiveRequest) -> None:
        self.usage[live.request.client].num_running += 1

    def event(self, live: LiveRequest, event: TokenEvent, now: float) -> None:
        self.usage[live.request.client].num_tokens += len(event.token_ids)

    def end(self, live: LiveRequest, end: RequestEnd) -> None:
        usage = self.usage[live.request.client]
        usage.num_running -= 1
        stats = None if end.event is None else end.event.stats
        if stats is not None:
            usage.num_drafted += stats.num_drafted
            usage.num_accepted += stats.num_accepted
            usage.num_cached_tokens += stats.num_cached_tokens

    def counters(self) -> dict[str, int]:
        """Return the counters that ClientStatus has no field for, by their names in PoolStatus."""
        found: dict[str, int] = {}
        for client, usage in self.usage.items():
            found[CLIENT_PROMPT + client] = usage.num_prompt_tokens
            found[CLIENT_CACHED + client] = usage.num_cached_tokens
        return found

    def _fresh(self, client: str, now: float) -> ClientUsage:
        share = self._limits.share_of(client) if client else ClientLimits()
        allowance = float(share.requests_per_minute or 0)
        return ClientUsage(share=share, allowance=allowance, refilled_at=now)

    @property
    def _here(self) -> str:
        """Suffix for messages that names the cell; empty if there is only one cell."""
        return f" in cell {self._limits.cell}" if self._limits.num_cells > 1 else ""
