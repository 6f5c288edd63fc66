"""Exact numerics end to end: ids do not depend on company, preemption or protocol, and the audit
that runs beside the service agrees."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import ray

from specdec.v1 import generation_pb2 as pb
from tests.service.conftest import Oracle, Service
from tests.service.test_service import PROMPT, completion, streamed, token_ids

pytestmark = pytest.mark.slow

NUM_TOKENS = 160
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.95, "seed": 12345},
)


def message(sampling: dict[str, Any], priority: int = 0) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        prompt_token_ids=pb.TokenIds(ids=PROMPT),
        sampling=pb.SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, **sampling),
        priority=priority,
    )


def callers(http: httpx.Client, stub: Any) -> list[Callable[[dict[str, Any]], list[int]]]:
    """The same request over every protocol; returns its ids."""

    def whole(sampling: dict[str, Any]) -> list[int]:
        body = completion(max_tokens=NUM_TOKENS, **sampling)
        return token_ids(http.post("/v1/completions", json=body))

    def events(sampling: dict[str, Any]) -> list[int]:
        chunks = streamed(http, completion(max_tokens=NUM_TOKENS, **sampling))
        return [i for chunk in chunks for i in chunk["choices"][0]["token_ids"]]

    def once(sampling: dict[str, Any]) -> list[int]:
        return list(stub.GenerateOnce(message(sampling)).token_ids)

    def stream(sampling: dict[str, Any]) -> list[int]:
        return [i for part in stub.Generate(message(sampling)) for i in part.token_ids]

    return [whole, events, once, stream]


@pytest.fixture(scope="module")
def expected(oracle: Oracle) -> list[list[int]]:
    """Plain decoding of the request, for each sampling."""
    return [
        oracle.tokens(PROMPT, max_tokens=NUM_TOKENS, ignore_eos=True, **sampling)
        for sampling in SAMPLINGS
    ]


def test_alone_the_ids_are_those_of_plain_decoding_over_every_protocol(
    service: Service, http: httpx.Client, stub: Any, expected: list[list[int]]
) -> None:
    service.until_audited()
    for sampling, ids in zip(SAMPLINGS, expected, strict=True):
        for call in callers(http, stub):
            assert call(sampling) == ids


def test_among_31_others_and_after_a_preemption_the_ids_are_the_same(
    service: Service, http: httpx.Client, stub: Any, expected: list[list[int]]
) -> None:
    """32 sequences of 180 tokens do not fit into the caches: the last by priority give way."""
    service.until_complete()
    before = service.status().counters["num_preemptions"]
    others = [
        completion([*PROMPT, 30 + place], max_tokens=NUM_TOKENS, temperature=0.9, seed=place)
        for place in range(22)
    ]
    with ThreadPoolExecutor(32) as threads:
        company = [threads.submit(http.post, "/v1/completions", json=body) for body in others]
        yielding = [
            threads.submit(stub.GenerateOnce, message(sampling, priority=10))
            for sampling in SAMPLINGS
        ]
        ours = [
            [threads.submit(call, sampling) for call in callers(http, stub)]
            for sampling in SAMPLINGS
        ]
        for ids, answers in zip(expected, ours, strict=True):
            assert [answer.result() for answer in answers] == [ids] * 4
        answers = [answer.result() for answer in yielding]
        assert [list(answer.token_ids) for answer in answers] == expected
        assert all(answer.result().status_code == 200 for answer in company)
    assert sum(answer.speculation.num_preemptions for answer in answers) > 0
    assert service.status().counters["num_preemptions"] > before
    assert all(answer.speculation.num_accepted_draft_tokens for answer in answers)


def test_the_audit_has_compared_what_was_served_and_found_no_difference(
    service: Service, http: httpx.Client, stub: Any
) -> None:
    token_ids(http.post("/v1/completions", json=completion()))
    service.until_audited()
    status = service.status()
    assert status.audit.num_audited > 0
    assert status.audit.num_diverged == 0
    assert (status.num_running, status.num_waiting) == (0, 0)
    _until_exported('ray_specdec_audited_requests_total{.*numerics="exact".*} [1-9]')


def test_every_answer_names_the_numerics_and_what_they_depend_on(
    service: Service, http: httpx.Client, stub: Any
) -> None:
    service.until_complete()
    fingerprint = http.post("/v1/completions", json=completion()).json()["system_fingerprint"]
    assert stub.GenerateOnce(message(SAMPLINGS[0])).system_fingerprint == fingerprint
    ready = http.get("/ready").json()
    assert (ready["numerics"], ready["system_fingerprint"]) == ("exact", fingerprint)
    targets = [r for r in service.status().replicas if r.role == "target"]
    drafts = [r for r in service.status().replicas if r.role == "draft"]
    assert {f"{r.model_digest[:12]} {r.fingerprint}" for r in targets} == {fingerprint}
    assert {r.numerics for r in targets} == {"exact"}
    assert {r.numerics for r in drafts} == {"fast"}


def _until_exported(pattern: str, limit_s: float = 40) -> None:
    """Metrics reach the node's port some seconds later."""
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    deadline = time.monotonic() + limit_s
    while True:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        if re.search(pattern, text):
            return
        assert time.monotonic() < deadline, [
            line for line in text.splitlines() if "specdec" in line
        ]
        time.sleep(0.5)
