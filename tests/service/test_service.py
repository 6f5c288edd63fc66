"""The whole service on one Ray: what comes back is what plain decoding emits, whoever dies."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import httpx
import pytest
import ray
from google.rpc import error_details_pb2, status_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from deployments.app import coordinator_spec
from deployments.coordinator.actor import Resolver, end, targets_begun, tell_target_begins
from deployments.coordinator.spec import NAMESPACE, CoordinatorSpec
from deployments.wire.endpoint import Endpoint
from specdec.health import health_pb2
from specdec.v1 import generation_pb2 as pb
from tests.service.conftest import Oracle, Service

pytestmark = pytest.mark.slow

PROMPT = list(range(5, 25))


def completion(prompt: list[int] | str = PROMPT, **fields: Any) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 40, "temperature": 0}
    return body | {"return_token_ids": True, "ignore_eos": True} | fields


def token_ids(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["choices"][0]["token_ids"]
    return ids


def streamed(http: httpx.Client, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


def mixed(count: int) -> list[dict[str, Any]]:
    """Requests of different lengths, seeds and temperatures."""
    generator = random.Random(7)
    return [
        {
            "prompt": [generator.randrange(3, 300) for _ in range(generator.randrange(1, 120))],
            "max_tokens": generator.randrange(1, 60),
            "temperature": generator.choice([0.0, 0.7, 1.3]),
            "seed": generator.randrange(2**40),
            "top_p": generator.choice([1.0, 0.9]),
            "top_k": generator.choice([0, 20]),
        }
        for _ in range(count)
    ]


def test_http_and_grpc_give_the_ids_of_plain_decoding(
    http: httpx.Client, stub: Any, oracle: Oracle
) -> None:
    expected = oracle.tokens(PROMPT, max_tokens=40, temperature=0.0, ignore_eos=True)
    assert token_ids(http.post("/v1/completions", json=completion())) == expected
    ids = [i for chunk in streamed(http, completion()) for i in chunk["choices"][0]["token_ids"]]
    assert ids == expected
    message = pb.GenerateRequest(
        prompt_token_ids=pb.TokenIds(ids=PROMPT),
        sampling=pb.SamplingParams(temperature=0, max_tokens=40, ignore_eos=True),
    )
    assert list(stub.GenerateOnce(message).token_ids) == expected
    assert [i for part in stub.Generate(message) for i in part.token_ids] == expected


def test_chat_streams_what_it_answers_whole(http: httpx.Client, stub: Any) -> None:
    body = {
        "messages": [{"role": "user", "content": "Größe of 日本語?"}],
        "max_tokens": 60,
        "temperature": 0.9,
        "seed": 11,
    }
    whole = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    text = ""
    with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                delta = json.loads(line.removeprefix("data: "))["choices"][0]["delta"]
                text += delta.get("content", "")
    assert text == whole
    message = pb.GenerateRequest(
        chat=pb.ChatMessages(messages=[pb.ChatMessage(role="user", content="Größe of 日本語?")]),
        sampling=pb.SamplingParams(temperature=0.9, seed=11, max_tokens=60),
    )
    assert stub.GenerateOnce(message).text == whole


def test_sixteen_mixed_requests_at_once(http: httpx.Client, oracle: Oracle) -> None:
    asked = mixed(16)

    def ask(fields: dict[str, Any]) -> list[int]:
        return token_ids(http.post("/v1/completions", json=completion(**fields)))

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, asked))
    for fields, answer in zip(asked, answers, strict=True):
        params = {name: value for name, value in fields.items() if name != "prompt"}
        assert answer == oracle.tokens(fields["prompt"], ignore_eos=True, **params)


def test_all_four_replicas_work_and_groups_are_counted(
    service: Service, http: httpx.Client, oracle: Oracle
) -> None:
    service.until_complete()
    before = {replica.replica_id: replica.num_groups for replica in service.status().replicas}
    bodies = [completion([*PROMPT, 30 + place], max_tokens=50) for place in range(16)]
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda b: http.post("/v1/completions", json=b), bodies))
    for body, answer in zip(bodies, answers, strict=True):
        expected = oracle.tokens(body["prompt"], max_tokens=50, temperature=0.0, ignore_eos=True)
        assert token_ids(answer) == expected
    status = service.status()
    assert len(status.replicas) == 4
    for replica in status.replicas:
        assert replica.num_groups > before[replica.replica_id]
    assert status.counters["num_equal_length_groups"] > 0
    assert status.counters["num_accepted"] > 0
    bound_s = service.config.scheduler.max_group_wait_s
    slowest_pass_s = max(replica.busy_s for replica in status.replicas)
    assert status.max_group_wait_s < bound_s + slowest_pass_s


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_client_that_leaves_frees_the_kv(
    service: Service, http: httpx.Client, stub: Any, protocol: str
) -> None:
    for _ in range(6):
        service.until_audited()
        before = service.status().counters["num_finished_abort"]
        _leave(http, stub, protocol)
        service.until(lambda status: status.num_running == 0, 30)
        if service.status().counters["num_finished_abort"] > before:
            break
    else:
        pytest.fail("the request went on to its end without its client")
    service.until(lambda status: not any(r.num_slots for r in status.replicas), 5)


def _leave(http: httpx.Client, stub: Any, protocol: str) -> None:
    """Serve's gRPC proxy (2.60) loses a cancel that comes while it writes a message: 1 in 5."""
    if protocol == "http":
        chunks = streamed(http, completion(max_tokens=900))
        next(chunks)
        chunks.close()
    else:
        sampling = pb.SamplingParams(max_tokens=900, ignore_eos=True)
        call = stub.Generate(pb.GenerateRequest(prompt="x", sampling=sampling))
        next(iter(call))
        call.cancel()


def test_a_whole_answer_is_aborted_when_its_client_leaves(service: Service) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{service.url}/v1/completions",
            json=completion(max_tokens=900),
            headers=service.headers(),
            timeout=0.3,
        )
    service.until(lambda status: status.num_running == 0, 5)


def test_abort_by_name(service: Service, stub: Any) -> None:
    sampling = pb.SamplingParams(max_tokens=900, ignore_eos=True)
    message = pb.GenerateRequest(prompt="x", sampling=sampling, request_id="to-abort")
    parts = iter(stub.Generate(message))
    next(parts)
    assert stub.Abort(pb.AbortRequest(request_id="to-abort")).aborted
    assert [part.finish_reason for part in parts][-1] == pb.FINISH_REASON_ABORT
    assert not stub.Abort(pb.AbortRequest(request_id="to-abort")).aborted


def test_bad_requests_over_both_proxies(http: httpx.Client, stub: Any) -> None:
    refused = [
        (completion(model="other"), 404),
        (completion(""), 400),
        (completion(temperature=-1), 400),
        (completion(max_tokens=10**9), 400),
        (completion([5] * 2000), 400),
        (completion(temperature="hot"), 400),
        (completion("x" * 10_000_000), 413),
    ]
    for body, status in refused:
        answer = http.post("/v1/completions", json=body)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["message"]
        assert isinstance(answer.json()["error"]["code"], str)
    assert http.post("/v1/completions", content=b"{").status_code == 400
    for ids, code in (([-1], "INVALID_ARGUMENT"), ([10**6], "INVALID_ARGUMENT")):
        message = pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=ids))
        for call in (stub.GenerateOnce, lambda m: next(stub.Generate(m))):
            with pytest.raises(grpc.RpcError) as error:
                call(message)
            assert error.value.code().name == code
            wrong = f"prompt_token_ids: token id {ids[0]} is not in 0.."
            assert error.value.details().startswith(wrong)
            info = _error_info(error.value)
            assert (info.reason, info.domain) == ("INVALID_VALUE", "specdec")
            assert info.metadata["param"] == "prompt_token_ids"
    with pytest.raises(grpc.RpcError) as error:
        stub.GenerateOnce(pb.GenerateRequest(model="other", prompt="x"))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert len(token_ids(http.post("/v1/completions", json=completion()))) == 40


def _error_info(error: Any) -> error_details_pb2.ErrorInfo:
    trailers = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


def test_models_and_health(http: httpx.Client, stub: Any) -> None:
    assert [card["id"] for card in http.get("/v1/models").json()["data"]] == ["tiny"]
    assert [model.id for model in stub.ListModels(pb.ListModelsRequest()).models] == ["tiny"]
    assert http.get("/health").status_code == 200
    assert http.get("/ready").status_code == 200


def test_grpc_as_tools_and_proxies_speak_it(service: Service) -> None:
    """The standard health service, reflection, and pings of a connection without calls."""
    options = [
        ("grpc.keepalive_time_ms", 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    states: list[grpc.ChannelConnectivity] = []
    with grpc.insecure_channel(service.grpc_address, options=options) as channel:
        channel.subscribe(states.append, try_to_connect=True)
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        for name in ("", "specdec.v1.GenerationService"):
            answer = check(health_pb2.HealthCheckRequest(service=name), timeout=20)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as error:
            check(health_pb2.HealthCheckRequest(service="other"), timeout=20)
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
        asked = reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="specdec.v1.GenerationService.Generate"
        )
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        (described,) = reflection.ServerReflectionInfo(iter([asked]), timeout=20)
        assert described.file_descriptor_response.file_descriptor_proto
        time.sleep(6)  # gRPC by itself ends a connection after three pings
        assert states[-1] is grpc.ChannelConnectivity.READY
        assert states.count(grpc.ChannelConnectivity.READY) == 1


def test_a_coordinator_that_nobody_uses_ends_itself(service: Service) -> None:
    spec = replace(coordinator_spec(service.config), application="unused", idle_exit_s=1.0)
    first = _resolved(spec)
    deadline = time.monotonic() + 30
    while _exists(spec.actor_name):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    second = _resolved(spec)
    assert second.token != first.token
    end(spec)


def test_coordinators_of_all_versions_hear_that_a_target_begins(service: Service) -> None:
    """Of the cell: a target that is about to leave waits for a successor of any version."""
    old = replace(coordinator_spec(service.config), application="told", idle_exit_s=60.0)
    new, other_cell = replace(old, version="new"), replace(old, cell=1)
    try:
        for spec in (old, new, other_cell):
            _resolved(spec)
        asyncio.run(tell_target_begins(new))
        deadline = time.monotonic() + 30
        while [asyncio.run(targets_begun(spec)) for spec in (old, new)] != [{"new": 1}] * 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert asyncio.run(targets_begun(other_cell)) == {}
    finally:
        for spec in (old, new, other_cell):
            end(spec)


def _resolved(spec: CoordinatorSpec, limit_s: float = 60) -> Endpoint:
    """Asked for as often as the service does: its process may take its time to start."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return asyncio.run(Resolver(spec).resolve())
        except ConnectionError:
            if time.monotonic() > deadline:
                raise


def _exists(actor_name: str) -> bool:
    try:
        ray.get_actor(actor_name, namespace=NAMESPACE)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "victim",
    [  # test_chaos.py kills the only one of each kind
        pytest.param("draft", marks=pytest.mark.nightly),
        "target",
        pytest.param("coordinator", marks=pytest.mark.nightly),
    ],
)
def test_killed_processes_are_a_pause_and_the_ids_are_right(
    service: Service, http: httpx.Client, oracle: Oracle, victim: str
) -> None:
    """Every process of the kind at once: nothing of what it held is left anywhere."""
    service.until_complete()
    expected = oracle.tokens(PROMPT, max_tokens=900, temperature=0.0, ignore_eos=True)
    is_coordinator = victim == "coordinator"
    pids = [service.coordinator_pid()] if is_coordinator else service.replica_pids(victim)
    assert len(pids) == (1 if is_coordinator else 2)
    ids: list[int] = []
    for chunk in streamed(http, completion(max_tokens=900)):
        ids += chunk["choices"][0]["token_ids"]
        while pids and len(ids) > 20:
            os.kill(pids.pop(), signal.SIGKILL)
    assert not pids
    assert ids == expected
    service.until_complete()
