"""Unpatched clients run their scripts against the scripted model, each in its own environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.environments import EnvironmentMissingError, run_client
from tests.clients.record import RECORDED
from tests.clients.server import scripted_server

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize("client", RECORDED)
def test_a_client_gets_what_it_asks_for(client: str, demo_model: Path) -> None:
    with scripted_server(keys=("secret",)) as url:
        _run_or_skip(client, url)


def _run_or_skip(client: str, url: str) -> None:
    try:
        printed = run_client(client, url)
    except EnvironmentMissingError as error:
        pytest.skip(f"{client}: {error}")
    assert "ok errors" in printed
