"""What the span of a request reads of what was asked and of its answer, whoever serves it."""

from __future__ import annotations

from typing import Protocol

from specdec_core.request import FinishReason, Request, RequestStats


class TracedRequest(Protocol):
    """One choice of a request."""

    @property
    def request(self) -> Request: ...

    @property
    def choice(self) -> int:
        """Which of its prompt's."""
        ...


class TracedAnswer(Protocol):
    """What is new of an answer."""

    @property
    def index(self) -> int:
        """Place of the first of `token_ids`."""
        ...

    @property
    def token_ids(self) -> tuple[int, ...]: ...

    @property
    def finish_reason(self) -> FinishReason | None: ...

    @property
    def stats(self) -> RequestStats | None: ...
