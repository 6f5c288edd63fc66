"""Processes that are stopped and never go on: what waits for them is served without them. Of a
coordinator test_chaos.py shows it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.service.conftest import NUM_INGRESSES, Oracle, Service
from tests.service.test_service import PROMPT, completion, streamed

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

NUM_TOKENS = 900


@contextlib.contextmanager
def stopped() -> Iterator[list[int]]:
    """Whoever is put into the list is stopped, by its pid; who still lives goes on at the end."""
    pids: list[int] = []
    try:
        yield pids
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def ids_while(victims: list[int], http: httpx.Client) -> list[int]:
    """Of a long stream in whose midst the victims stop."""
    ids: list[int] = []
    with stopped() as pids:
        for chunk in streamed(http, completion(max_tokens=NUM_TOKENS)):
            ids += chunk["choices"][0]["token_ids"]
            while victims and len(ids) > 20:
                pids.append(victims.pop())
                os.kill(pids[-1], signal.SIGSTOP)
    return ids


@pytest.mark.timeout(400)
@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_replica_that_hangs_is_done_without(
    service: Service, http: httpx.Client, oracle: Oracle, role: str
) -> None:
    """One of the two, and then the other: one of them has the stream."""
    service.until_complete()
    expected = oracle.tokens(PROMPT, max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    for pid in service.replica_pids(role):
        assert ids_while([pid], http) == expected
        service.until_complete()


def wait_until(condition: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s"
        time.sleep(0.1)


@pytest.mark.timeout(300)
def test_an_ingress_that_hangs_is_replaced_within_a_minute(service: Service) -> None:
    """By itself Serve waits for a minute and a half, and then for it to end gracefully."""
    service.until_complete()
    hung = service.replica_pids("ingress")[0]
    with stopped() as pids:
        pids.append(hung)
        os.kill(hung, signal.SIGSTOP)
        wait_until(lambda: hung not in service.replica_pids("ingress"), limit_s=60)
    wait_until(lambda: len(service.replica_pids("ingress")) == NUM_INGRESSES, limit_s=120)
    service.until_complete()
