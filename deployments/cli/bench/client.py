"""Interface of a server for a load, independent of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from deployments.cli.bench.prompts import Prompt
from deployments.cli.bench.records import Chunk
from deployments.cli.bench.speculation import SpecCounts
from deployments.cli.bench.stage_figures import Stages

SETUP_TIMEOUT_S = 30.0
"""Timeout in seconds of the calls around a run: models, /metrics."""


class ServerTotals(NamedTuple):
    """Totals since the server's start. None for totals that the server does not report."""

    speculation: SpecCounts | None = None
    stages: Stages | None = None


class Client(Protocol):
    """A connected server and the model to which requests go."""

    @property
    def model(self) -> str: ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Send the request and yield its chunks. Closing the generator abandons the request."""
        ...

    async def totals(self) -> ServerTotals: ...
