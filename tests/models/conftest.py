"""A GPU without one, for the tests that say what waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.fake_gpu import fake_gpu


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """While it lasts there is a GPU: what made the host wait for it, as it comes."""
    with fake_gpu(monkeypatch) as waits:
        yield waits
