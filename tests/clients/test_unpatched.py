"""Unpatched clients run their scripts against the scripted model, each in its own environment."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.harness.ports import free_port
from tests.clients.environments import EnvironmentMissingError, run_client
from tests.clients.record import LOOPED, RECORDED
from tests.clients.server import scripted_server

KEEP_ALIVE_S = 0.002
"""Streams have comment lines between their events, which clients have to skip."""

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize("client", RECORDED)
def test_a_client_gets_what_it_asks_for(client: str, demo_model: Path) -> None:
    with scripted_server(keys=("secret",), keep_alive_s=KEEP_ALIVE_S) as url:
        _run_or_skip(client, url)


@pytest.mark.parametrize("format_name", ["hermes", "qwen3_coder", "mistral", "openai"])
@pytest.mark.parametrize("client", LOOPED)
def test_a_client_runs_tools_in_a_loop(client: str, format_name: str, demo_model: Path) -> None:
    settings = {"keys": ("secret",), "keep_alive_s": KEEP_ALIVE_S}
    with scripted_server(format=format_name, **settings) as url:
        _run_or_skip(client, url, "loop")


def test_a_page_in_chromium_gets_what_it_asks_for(demo_model: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    port = str(free_port())
    with scripted_server(keys=("secret",), cors_origins=(f"http://127.0.0.1:{port}",)) as url:
        _run_or_skip("browser", url, PAGE_PORT=port, CHROMIUM=chromium)


def _run_or_skip(client: str, url: str, script: str = "client", **variables: str) -> None:
    try:
        printed = run_client(client, url, variables, script)
    except EnvironmentMissingError as error:
        pytest.skip(f"{client}: {error}")
    assert {"client": "ok errors", "loop": "ok loop"}[script] in printed
