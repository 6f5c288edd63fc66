"""Protocols of the request and the answer that a request's span reads, for any server."""

from __future__ import annotations

from typing import Protocol

from specdec_core.request import FinishReason, Request, RequestStats


class TracedRequest(Protocol):
    """One choice of a request."""

    @property
    def request(self) -> Request: ...

    @property
    def choice(self) -> int:
        """Number of the choice among those of its prompt."""
        ...


class TracedAnswer(Protocol):
    """New part of an answer."""

    @property
    def index(self) -> int:
        """Position of the first of `token_ids`."""
        ...

    @property
    def token_ids(self) -> tuple[int, ...]: ...

    @property
    def finish_reason(self) -> FinishReason | None: ...

    @property
    def stats(self) -> RequestStats | None: ...
