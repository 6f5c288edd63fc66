"""What a load needs of a server, whatever it speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from deployments.cli.bench.prompts import Prompt
from deployments.cli.bench.records import Chunk
from deployments.cli.bench.speculation import SpecCounts
from deployments.cli.bench.stage_figures import Stages

SETUP_TIMEOUT_S = 30.0
"""For the calls around a run: models, /metrics."""


class ServerTotals(NamedTuple):
    """Since the server's start; None of what it does not tell."""

    speculation: SpecCounts | None = None
    stages: Stages | None = None


class Client(Protocol):
    """A connected server and the model that is asked."""

    @property
    def model(self) -> str: ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Ask; closing the generator abandons the request."""
        ...

    async def totals(self) -> ServerTotals: ...
