"""Loads a service over HTTP with the client of `specdec bench serve`, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.cli.bench.http_load import http_client
from deployments.cli.bench.load import Load, LoadRun, run_load
from deployments.cli.bench.prompts import Prompt
from deployments.cli.generate.prompt_file import PromptLine
from deployments.cli.generate.prompt_text import first_messages
from deployments.config.service import ServiceConfig

_TIMEOUT_S = 600.0


def load(
    config: ServiceConfig,
    lines: Sequence[PromptLine],
    max_tokens: int,
    extra_body: Mapping[str, Any] | None = None,
    max_concurrency: int | None = None,
) -> LoadRun:
    """The first turns of all lines as greedy chats; `max_concurrency` None: as many streams as
    lines."""
    sampling = {"temperature": 0, "max_tokens": max_tokens}
    prompts = [Prompt(messages=first_messages(line), sampling=sampling) for line in lines]
    url = f"http://127.0.0.1:{config.port}"
    run = ask_all(url, prompts, max_concurrency, _TIMEOUT_S, extra_body=extra_body)
    assert not run.failures, run.failures
    return run


def ask_all(
    url: str,
    prompts: Sequence[Prompt],
    max_concurrency: int | None,
    timeout_s: float,
    *,
    is_chat: bool = True,
    model: str | None = None,
    api_key: str | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> LoadRun:
    """Every prompt as soon as there is room for it."""
    asked = Load(
        prompts=prompts,
        arrivals_s=[0.0] * len(prompts),
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
    )

    async def run() -> LoadRun:
        async with http_client(
            url, is_chat=is_chat, model=model, api_key=api_key, extra_body=extra_body or {}
        ) as client:
            return await run_load(client, asked, lambda num_ended, speed: None)

    return asyncio.run(run())
