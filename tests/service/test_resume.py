"""An ingress dies, and its clients go on behind what they have: over HTTP and gRPC."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import grpc
import httpx
import pytest

from specdec.v1 import generation_pb2 as pb
from tests.service.conftest import NUM_INGRESSES, Service
from tests.service.test_service import PROMPT, completion, streamed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

NUM_TOKENS = 400
FIELDS: list[dict[str, Any]] = [
    {"max_tokens": NUM_TOKENS},
    {"max_tokens": NUM_TOKENS, "temperature": 0.8, "logprobs": 1, "frequency_penalty": 0.2},
]
BACK_S = 120.0


class Answer:
    """What a client has of an answer, over one connection or more."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.offsets: list[int] = []
        self.reason: str | None = None
        self.usage: dict[str, Any] = {}
        self.seed: int | None = None

    @property
    def resume(self) -> dict[str, Any]:
        return {"token_ids": self.token_ids, "seed": self.seed}

    def take(self, chunk: dict[str, Any]) -> None:
        assert "error" not in chunk or chunk["error"]["code"] == 503
        self.seed = chunk.get("seed", self.seed)
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices", ()):
            self.text += choice["text"]
            self.token_ids += choice["token_ids"]
            self.offsets += (choice["logprobs"] or {}).get("text_offset", [])
            self.reason = choice["finish_reason"] or self.reason

    def told(self) -> tuple[object, ...]:
        usage = {name: count for name, count in self.usage.items() if name.endswith("_tokens")}
        return self.text, self.token_ids, self.offsets, self.reason, usage


def kill_ingresses(service: Service) -> None:
    for pid in service.replica_pids("ingress"):
        os.kill(pid, signal.SIGKILL)


def restored(service: Service) -> None:
    deadline = time.monotonic() + BACK_S
    while len(service.replica_pids("ingress")) < NUM_INGRESSES and time.monotonic() < deadline:
        time.sleep(0.2)


def finish(http: httpx.Client, body: dict[str, Any], answer: Answer) -> None:
    """Come back until somebody answers."""
    deadline = time.monotonic() + BACK_S
    while answer.reason is None and time.monotonic() < deadline:
        try:
            for chunk in streamed(http, body | {"resume": answer.resume}):
                answer.take(chunk)
        except (httpx.HTTPError, AssertionError):
            time.sleep(0.5)


@pytest.mark.parametrize("fields", FIELDS)
def test_a_client_goes_on_when_every_ingress_has_died(
    service: Service, http: httpx.Client, fields: dict[str, Any]
) -> None:
    body = completion(**fields, stream_options={"include_usage": True})
    cut = Answer()
    try:
        for chunk in streamed(http, body):
            cut.take(chunk)
            if len(cut.token_ids) >= 60 and cut.reason is None:
                kill_ingresses(service)
    except httpx.HTTPError:
        pass
    assert 60 <= len(cut.token_ids) < NUM_TOKENS
    finish(http, body, cut)
    restored(service)
    undisturbed = Answer()
    for chunk in streamed(http, body | {"seed": cut.seed}):
        undisturbed.take(chunk)
    assert cut.told() == undisturbed.told()
    service.until(lambda status: status.num_running == status.num_waiting == 0, 60)


def take_until_cut(service: Service, stream: Any, parts: list[pb.GenerateResponse]) -> None:
    for part in stream:
        parts.append(part)
        if part.index >= 60:
            kill_ingresses(service)


def test_a_client_goes_on_over_grpc(service: Service, stub: Any) -> None:
    sampling = pb.SamplingParams(temperature=0.8, max_tokens=NUM_TOKENS, ignore_eos=True)
    asked = pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=PROMPT), sampling=sampling)
    parts: list[pb.GenerateResponse] = []
    with pytest.raises(grpc.RpcError) as error:
        take_until_cut(service, stub.Generate(asked), parts)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    restored(service)
    ids = [i for part in parts for i in part.token_ids]
    resume = pb.Resume(token_ids=[pb.TokenIds(ids=ids)], seed=parts[0].seed)
    asked.resume.CopyFrom(resume)
    rest: list[pb.GenerateResponse] = []
    deadline = time.monotonic() + BACK_S
    while not rest and time.monotonic() < deadline:
        try:
            rest = list(stub.Generate(asked))
        except grpc.RpcError:
            time.sleep(0.5)
    asked.ClearField("resume")
    asked.sampling.seed = parts[0].seed
    whole = stub.GenerateOnce(asked)
    assert [i for part in (*parts, *rest) for i in part.token_ids] == whole.token_ids
    assert "".join(part.text for part in (*parts, *rest)) == whole.text
    assert rest[-1].usage.completion_tokens == whole.usage.completion_tokens == NUM_TOKENS


def test_ids_of_another_answer_are_refused(service: Service, http: httpx.Client) -> None:
    ids = http.post("/v1/completions", json=completion()).json()["choices"][0]["token_ids"]
    wrong = [*ids[:20], (ids[20] + 1) % 300, *ids[21:30]]
    answer = http.post("/v1/completions", json=completion(resume={"token_ids": wrong}))
    assert answer.status_code == 400
    assert f"at position 20 is not this request's: its answer has {ids[20]} there" in answer.text
    service.until(lambda status: status.num_running == status.num_waiting == 0, 60)
