"""A `specdec serve` in processes of its own, and streams that are read from it over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from deployments.bench.http_load import http_client
from deployments.bench.load import Load, LoadRun, run_load
from deployments.bench.prompts import Prompt
from deployments.config import ServiceConfig
from deployments.generate.prompt_file import PromptLine
from deployments.generate.prompt_text import first_messages

_START_TIMEOUT_S = 300.0
_TIMEOUT_S = 600.0


@contextmanager
def service(config: ServiceConfig) -> Iterator[subprocess.Popen[bytes]]:
    """Until it answers, and then until it has ended."""
    settings = {f"SPECDEC_{name}".upper(): str(v) for name, v in config.deployable().items()}
    command = [sys.executable, "-c", "from deployments.cli import main; main()", "serve"]
    process = subprocess.Popen(command, env={**os.environ, **settings})
    try:
        _wait_until_ready(config, process)
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _wait_until_ready(config: ServiceConfig, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{config.port}/ready", timeout=2):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(1)
    raise RuntimeError("the service did not start")


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
    asked = Load(
        prompts=prompts,
        arrivals_s=[0.0] * len(prompts),
        max_concurrency=max_concurrency,
        timeout_s=_TIMEOUT_S,
    )
    run = asyncio.run(_run(f"http://127.0.0.1:{config.port}", asked, extra_body or {}))
    assert not run.failures, run.failures
    return run


async def _run(url: str, asked: Load, extra_body: Mapping[str, Any]) -> LoadRun:
    async with http_client(
        url, is_chat=True, model=None, api_key=None, extra_body=extra_body
    ) as client:
        return await run_load(client, asked, lambda num_ended, speed: None)
