"""An ingress dies, and its clients go on behind what they have: over HTTP and gRPC."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import pytest

from specdec.v1 import generation_pb2 as pb
from tests.service.conftest import NUM_INGRESSES, Service
from tests.service.test_hung import wait_until
from tests.service.test_service import PROMPT, completion, streamed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

NUM_TOKENS = 600
FIELDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "logprobs": 1, "frequency_penalty": 0.2},
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
        assert "error" not in chunk or chunk["error"]["code"] == "service_unavailable"
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


class OverHttp:
    """A client with a stream of `completion(**fields)`."""

    def __init__(self, http: httpx.Client, fields: dict[str, Any]) -> None:
        self._http = http
        self._body = completion(
            max_tokens=NUM_TOKENS, **fields, stream_options={"include_usage": True}
        )
        self._had = Answer()

    @property
    def num_tokens(self) -> int:
        return len(self._had.token_ids)

    def begin(self) -> None:
        """Until it is cut."""
        with contextlib.suppress(httpx.HTTPError):
            self._take(self._body, self._had)

    def go_on(self) -> None:
        """Come back until somebody answers."""
        deadline = time.monotonic() + BACK_S
        while self._had.reason is None and time.monotonic() < deadline:
            try:
                self._take(self._body | {"resume": self._had.resume}, self._had)
            except (httpx.HTTPError, AssertionError):
                time.sleep(0.5)

    def assert_whole(self) -> None:
        """What it has is what an undisturbed stream has."""
        undisturbed = Answer()
        self._take(self._body | {"seed": self._had.seed}, undisturbed)
        assert self._had.told() == undisturbed.told()

    def _take(self, body: dict[str, Any], answer: Answer) -> None:
        for chunk in streamed(self._http, body):
            answer.take(chunk)


class OverGrpc:
    """A client with a stream by chance."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self._asked = pb.GenerateRequest(
            prompt_token_ids=pb.TokenIds(ids=PROMPT),
            sampling=pb.SamplingParams(temperature=0.8, max_tokens=NUM_TOKENS, ignore_eos=True),
        )
        self._had: list[pb.GenerateResponse] = []
        self._rest: list[pb.GenerateResponse] = []

    @property
    def num_tokens(self) -> int:
        return self._had[-1].index if self._had else 0

    def begin(self) -> None:
        """Until it is cut."""
        with pytest.raises(grpc.RpcError) as error:
            self._take(self._stub.Generate(self._asked))
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE

    def go_on(self) -> None:
        """Come back until somebody answers."""
        ids = [i for part in self._had for i in part.token_ids]
        resume = pb.Resume(token_ids=[pb.TokenIds(ids=ids)], seed=self._had[0].seed)
        asked = pb.GenerateRequest()
        asked.CopyFrom(self._asked)
        asked.resume.CopyFrom(resume)
        deadline = time.monotonic() + BACK_S
        while not self._rest and time.monotonic() < deadline:
            try:
                self._rest = list(self._stub.Generate(asked))
            except grpc.RpcError:
                time.sleep(0.5)

    def assert_whole(self) -> None:
        """What it has is what an undisturbed call has."""
        self._asked.sampling.seed = self._had[0].seed
        whole, parts = self._stub.GenerateOnce(self._asked), (*self._had, *self._rest)
        assert [i for part in parts for i in part.token_ids] == whole.token_ids
        assert "".join(part.text for part in parts) == whole.text
        assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens == NUM_TOKENS

    def _take(self, stream: Iterable[pb.GenerateResponse]) -> None:
        for part in stream:
            self._had.append(part)


def kill_ingresses(service: Service) -> None:
    for pid in service.replica_pids("ingress"):
        os.kill(pid, signal.SIGKILL)


def test_clients_go_on_when_every_ingress_has_died(
    service: Service, http: httpx.Client, stub: Any
) -> None:
    """Over both protocols, greedily and by chance: the same deaths cut all of them."""
    over_http = (OverHttp(http, fields) for fields in FIELDS)
    clients: list[OverHttp | OverGrpc] = [*over_http, OverGrpc(stub)]
    with ThreadPoolExecutor(len(clients)) as threads:
        begun = [threads.submit(client.begin) for client in clients]
        wait_until(lambda: all(client.num_tokens >= 60 for client in clients), BACK_S)
        kill_ingresses(service)
        for one in begun:
            one.result()
        assert all(60 <= client.num_tokens < NUM_TOKENS for client in clients)
        list(threads.map(lambda client: client.go_on(), clients))
    wait_until(lambda: len(service.replica_pids("ingress")) == NUM_INGRESSES, BACK_S)
    for client in clients:
        client.assert_whole()
    service.until(lambda status: status.num_running == status.num_waiting == 0, 60)


def test_ids_of_another_answer_are_refused(service: Service, http: httpx.Client) -> None:
    ids = http.post("/v1/completions", json=completion()).json()["choices"][0]["token_ids"]
    wrong = [*ids[:20], (ids[20] + 1) % 300, *ids[21:30]]
    answer = http.post("/v1/completions", json=completion(resume={"token_ids": wrong}))
    assert answer.status_code == 400
    assert f"at position 20 is not this request's: its answer has {ids[20]} there" in answer.text
    service.until(lambda status: status.num_running == status.num_waiting == 0, 60)
