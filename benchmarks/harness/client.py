"""Load a service over HTTP with the client of `specdec bench serve`, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from deployments.cli.bench.client import Prompt, http_client
from deployments.cli.bench.load import LoadRun, run_load


def ask_all(
    url: str, prompts: Sequence[Prompt], max_concurrency: int, timeout_s: float, **server: Any
) -> LoadRun:
    """Send every prompt as soon as there is room for it. `server` goes to `http_client`."""

    async def run() -> LoadRun:
        async with http_client(url, **server) as client:
            return await run_load(
                client, prompts, max_concurrency=max_concurrency, timeout_s=timeout_s
            )

    return asyncio.run(run())
