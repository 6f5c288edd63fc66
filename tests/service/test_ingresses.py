"""Three ingress replicas and one pool: limits, aborts, seeds and figures do not depend on the way.

Serve sends every call to any of them; with calls enough each has its share.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import psutil
import pytest

from deployments.config.api_keys import default_name, key_digest
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc
from tests.service.conftest import (
    LIMITED_KEY,
    MAX_CONCURRENT,
    METRICS_KEY,
    NUM_INGRESSES,
    Service,
)
from tests.service.test_hung import stopped

pytestmark = pytest.mark.slow

NUM_CALLS = 12
NUM_REFUSED = (NUM_INGRESSES - 1) * MAX_CONCURRENT
SHORT = {"prompt": "x", "max_tokens": 12, "ignore_eos": True, "temperature": 0}


def ingresses(service: Service) -> list[psutil.Process]:
    processes = [psutil.Process(pid) for pid in service.replica_pids("ingress")]
    assert len(processes) == NUM_INGRESSES
    return processes


def busy_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def standing_still(service: Service) -> Iterator[None]:
    """No target goes on, so that nothing ends. On a machine so busy that this takes a quarter of a
    minute they are replaced, and what they had is answered by others."""
    with stopped() as pids:
        for pid in service.replica_pids("target"):
            pids.append(pid)
            os.kill(pid, signal.SIGSTOP)
        yield


def test_a_limit_holds_for_all_of_them_together(service: Service) -> None:
    name = default_name(key_digest(LIMITED_KEY))
    before = [busy_s(process) for process in ingresses(service)]

    async def scenario() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            base_url=service.url,
            headers=service.headers(LIMITED_KEY),
            timeout=120,
            limits=httpx.Limits(max_connections=None),
        ) as client:
            with standing_still(service):
                calls = [
                    asyncio.create_task(client.post("/v1/completions", json=SHORT))
                    for _ in range(NUM_INGRESSES * MAX_CONCURRENT)
                ]
                refused = [
                    await call
                    for call in itertools.islice(asyncio.as_completed(calls), NUM_REFUSED)
                ]
                running = {each.name: each.num_running for each in service.status().clients}
                assert running[name] == MAX_CONCURRENT
            answers = await asyncio.gather(*calls)
            assert all(answer.status_code == 429 for answer in refused)
            return answers

    answers = asyncio.run(scenario())
    counts = Counter(answer.status_code for answer in answers)
    assert counts == {200: MAX_CONCURRENT, 429: NUM_REFUSED}
    for answer in answers:
        if answer.status_code == 429:
            assert f"the limit is {MAX_CONCURRENT}" in answer.json()["error"]["message"]
            assert float(answer.headers["retry-after"]) > 0
    after = [busy_s(process) for process in ingresses(service)]
    assert all(now > then for now, then in zip(after, before, strict=True)), "one was never asked"
    clients = {client.name: client for client in service.status().clients}
    assert (clients[name].num_running, clients[name].num_requests) == (0, MAX_CONCURRENT)


def test_any_of_them_ends_any_request(service: Service, stub: Any) -> None:
    for number in range(NUM_CALLS):
        sampling = pb.SamplingParams(max_tokens=900, ignore_eos=True)
        asked = pb.GenerateRequest(prompt="x", sampling=sampling, request_id=f"any-{number}")
        parts = iter(stub.Generate(asked))
        next(parts)
        with service.channel() as channel:
            other = pb_grpc.GenerationServiceStub(channel)
            assert other.Abort(pb.AbortRequest(request_id=f"any-{number}")).aborted
        assert [part.finish_reason for part in parts][-1] == pb.FINISH_REASON_ABORT


def test_a_name_in_use_is_in_use_for_all_of_them(service: Service, stub: Any) -> None:
    sampling = pb.SamplingParams(max_tokens=900, ignore_eos=True)
    asked = pb.GenerateRequest(prompt="x", sampling=sampling, request_id="taken")
    parts = iter(stub.Generate(asked))
    next(parts)
    for _ in range(6):
        with pytest.raises(grpc.RpcError) as error:
            stub.GenerateOnce(asked)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert stub.Abort(pb.AbortRequest(request_id="taken")).aborted
    assert [part.finish_reason for part in parts][-1] == pb.FINISH_REASON_ABORT


def test_choices_and_seeds_are_the_same_through_all_of_them(http: httpx.Client, stub: Any) -> None:
    body = SHORT | {"temperature": 1.2, "seed": 5, "n": 3, "return_token_ids": True}

    def ask(_: int) -> list[list[int]]:
        choices = http.post("/v1/completions", json=body).raise_for_status().json()["choices"]
        return [choice["token_ids"] for choice in choices]

    with ThreadPoolExecutor(6) as threads:
        first, *others = threads.map(ask, range(NUM_CALLS))
    assert all(answer == first for answer in others)
    assert len({tuple(ids) for ids in first}) == 3
    sampling = pb.SamplingParams(max_tokens=12, ignore_eos=True, temperature=1.2, seed=5)
    told: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for part in stub.Generate(pb.GenerateRequest(prompt="x", sampling=sampling, n=3)):
        told[part.choice] += part.token_ids
    assert list(told.values()) == first


def test_figures_are_the_same_through_all_of_them(service: Service) -> None:
    service.until_audited()
    service.until(lambda status: not any(r.num_slots for r in status.replicas), 10)
    told: set[frozenset[str]] = set()
    for _ in range(NUM_CALLS):
        with httpx.Client(base_url=service.url, timeout=60) as client:
            headers = service.headers(METRICS_KEY)
            page = client.get("/metrics", headers=headers).raise_for_status().text
        told.add(frozenset(line for line in page.splitlines() if "replica_" not in line))
    assert frozenset.union(*told) - frozenset.intersection(*told) == set()


@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions", "/tokenize"])
def test_none_of_them_lets_a_caller_in_without_a_key(service: Service, path: str) -> None:
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for key in ("", "Bearer wrong"):
            for _ in range(6):
                headers = {"authorization": key} if key else {}
                call = client.get if path == "/v1/models" else client.post
                assert call(path, headers=headers).status_code == 401
    with grpc.insecure_channel(service.grpc_address) as channel:
        with pytest.raises(grpc.RpcError) as error:
            pb_grpc.GenerationServiceStub(channel).ListModels(pb.ListModelsRequest())
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
