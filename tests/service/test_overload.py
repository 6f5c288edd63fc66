"""More at once than one key may have, and clients that mean no good, on the running service."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping

import grpc
import httpx
import pytest

from benchmarks.overload.attacks import Target
from benchmarks.overload.clients import ask_at_once
from benchmarks.overload.hostile import coordinator_ports, hostile_clients
from benchmarks.overload.questions import Ids, Server, Verdict, Way, mixture, prompts
from benchmarks.overload.verdicts import Found, judge
from tests.service.conftest import KEY, LIMITED_KEY, MAX_CONCURRENT, Oracle, Service
from tests.service.test_ingresses import standing_still

pytestmark = pytest.mark.slow

NUM_EACH = 60
NUM_TOKENS = 8
PROMPTS = prompts(4)
ATTACK_S = 8.0


@pytest.fixture(scope="module")
def plain(oracle: Oracle) -> Mapping[Ids, Ids]:
    params = {"max_tokens": NUM_TOKENS, "temperature": 0.0, "ignore_eos": True}
    return {prompt: tuple(oracle.tokens(list(prompt), **params)) for prompt in PROMPTS}


def server(service: Service, key: str) -> Server:
    config = service.config
    return Server(port=config.port, grpc_port=config.grpc_port, model="tiny", api_key=key)


def test_of_many_at_once_some_are_answered_rightly_and_the_others_refused_politely(
    service: Service, plain: Mapping[Ids, Ids]
) -> None:
    service.until_audited()
    questions = mixture(NUM_EACH, NUM_EACH, PROMPTS, NUM_TOKENS)
    num_refused = len(questions) - MAX_CONCURRENT
    with contextlib.ExitStack() as standing:

        def stand_still() -> None:
            """Not before: a target that stands still for long is replaced."""
            standing.enter_context(standing_still(service))

        def watch(num_ended: int) -> None:
            """Nothing that was accepted ends before all others are refused."""
            if num_ended >= num_refused:
                standing.close()

        outcomes = ask_at_once(
            server(service, KEY),
            questions,
            num_processes=2,
            timeout_s=200,
            watch=watch,
            before_start=stand_still,
        )
    found = judge(outcomes, plain)
    assert found.broken_promises() == []
    assert found.count(Verdict.ANSWERED) == MAX_CONCURRENT
    assert found.count(Verdict.REFUSED) == num_refused
    for way in Way:
        assert found.counts[way, Verdict.REFUSED] > 0
    assert all(hint > 0 for hint in found.retry_after_s)
    nothing_is_left(service)


def test_hostile_clients_get_nothing_and_others_their_answers(
    service: Service, plain: Mapping[Ids, Ids]
) -> None:
    target = Target(
        server=server(service, LIMITED_KEY),
        coordinator_ports=coordinator_ports(os.getpid()),
        slow_tokens=20,
    )
    assert target.coordinator_ports
    with hostile_clients(target, share=0.1) as (process, tally):
        until = time.monotonic() + ATTACK_S
        while time.monotonic() < until:
            found = asked_beside(service, plain)
            assert found.broken_promises() == []
            assert found.count(Verdict.REFUSED) == 0
        assert process.is_running()
    assert "FAKE WORKER WAS TOLD SOMETHING" not in tally
    assert any(name.startswith("fake worker: ") for name in tally)
    assert tally["header: ended with 431"] > 0
    assert tally["length: ended with 413"] > 0
    assert tally["slow http: bytes read"] > 0
    nothing_is_left(service)


def test_an_answer_of_many_megabytes_arrives_whole(http: httpx.Client) -> None:
    """More than the 4 MiB that gRPC lets through between an ingress and its proxy by itself."""
    prompt = [5 + place % 200 for place in range(900)]
    body = {"model": "tiny", "prompt": [prompt] * 8, "max_tokens": 1, "prompt_logprobs": 20}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text[:300]
    assert len(answer.content) > 5 * 2**20
    choices = answer.json()["choices"]
    assert [len(choice["prompt_logprobs"]) for choice in choices] == [900] * 8


def asked_beside(service: Service, plain: Mapping[Ids, Ids]) -> Found:
    outcomes = ask_at_once(
        server(service, KEY),
        mixture(12, 6, PROMPTS, NUM_TOKENS),
        num_processes=1,
        timeout_s=100,
        watch=lambda num_ended: None,
    )
    return judge(outcomes, plain)


def nothing_is_left(service: Service) -> None:
    service.until_audited()
    service.until(lambda status: status.num_waiting + status.num_running == 0, 60)
    service.until(lambda status: not any(r.num_slots for r in status.replicas), 60)
    with service.channel() as channel:
        grpc.channel_ready_future(channel).result(20)
