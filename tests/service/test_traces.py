"""One connected trace from a client to the rounds on draft and target, and logs that name it."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray

from deployments.config.api_keys import default_name, key_digest
from specdec.v1 import generation_pb2 as pb
from tests.service.collector import Collector, Span
from tests.service.conftest import KEY, Service

pytestmark = pytest.mark.slow

LIMIT_S = 60.0
WORDS = "einerlei vielerlei mancherlei"
"""A prompt that is looked for in what was sent."""


class Client:
    """A caller that traces."""

    def __init__(self) -> None:
        self.trace_id, self.span_id = secrets.token_hex(16), secrets.token_hex(8)

    @property
    def headers(self) -> dict[str, str]:
        return {"traceparent": f"00-{self.trace_id}-{self.span_id}-01"}


def trace_of(collector: Collector, client: Client) -> list[Span]:
    """Once every process has sent its part, and nothing more has come for a while."""
    deadline = time.monotonic() + LIMIT_S
    spans: list[Span] = []
    while True:
        time.sleep(1)
        before, spans = spans, collector.of(client.trace_id)
        processes = {span.resource["specdec.process"] for span in spans}
        if len(processes) == 4 and len(spans) == len(before):
            return spans
        assert time.monotonic() < deadline, sorted(span.name for span in spans)


def assert_connected(spans: list[Span], client: Client, operation: str) -> None:
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    (root,) = [span for span in spans if span.parent_id not in by_id]
    assert root.parent_id == client.span_id
    assert root.name == f"{operation} tiny"
    (pool,) = [span for span in spans if span.name == "specdec.pool"]
    assert pool.parent_id == root.span_id
    counts = Counter(span.name for span in spans)
    assert counts["specdec.queue"] == 1
    assert min(counts[f"specdec.{name}"] for name in ("prefill", "draft", "verify")) > 0
    assert all(s.parent_id == pool.span_id for s in spans if s not in (root, pool))
    for name, process in (("draft", "draft"), ("verify", "target")):
        of = {s.resource["specdec.process"] for s in spans if s.name == f"specdec.{name}"}
        assert of == {process}
    assert {span.resource["service.name"] for span in spans} == {"specdec"}
    rounds = [event for name, event in pool.events if name == "specdec.round"]
    numbers = [event["specdec.round"] for event in rounds]
    assert numbers[:8] == [*range(min(8, len(numbers)))]
    assert all(event["specdec.group_size"] >= 1 for event in rounds)
    assert all(event["specdec.verify_s"] > 0 for event in rounds)
    assert any(event.get("specdec.draft_s", 0) > 0 for event in rounds)
    assert not any(WORDS in span.text or KEY in span.text for span in spans)


def test_an_http_request_is_one_trace_down_to_every_round(
    service: Service, http: httpx.Client, collector: Collector
) -> None:
    service.until_complete()
    client = Client()
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": WORDS}],
        "max_tokens": 40,
        "ignore_eos": True,
        "temperature": 0,
    }
    answer = http.post("/v1/chat/completions", json=body, headers=client.headers)
    assert answer.status_code == 200, answer.text
    spans = trace_of(collector, client)
    assert_connected(spans, client, "chat")
    (root,) = [span for span in spans if span.name == "chat tiny"]
    usage = answer.json()["usage"]
    expected = {
        "gen_ai.provider.name": "specdec",
        "gen_ai.system": "specdec",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 40,
        "gen_ai.response.id": answer.json()["id"],
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": 40,
        "http.route": "/v1/chat/completions",
        "specdec.algorithm": "exspec",
        "specdec.spec_method": "draft_model",
        "specdec.num_spec_tokens": 4,
    }
    assert expected.items() <= root.attributes.items()
    assert root.attributes["gen_ai.response.time_to_first_chunk"] > 0


@pytest.mark.parametrize("method", ["Generate", "GenerateOnce"])
def test_a_grpc_call_is_one_trace_too(
    service: Service, stub: Any, collector: Collector, method: str
) -> None:
    service.until_complete()
    client = Client()
    message = pb.GenerateRequest(
        prompt=WORDS, sampling=pb.SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    )
    metadata = tuple(client.headers.items())
    if method == "Generate":
        assert list(stub.Generate(message, metadata=metadata))
    else:
        stub.GenerateOnce(message, metadata=metadata)
    spans = trace_of(collector, client)
    assert_connected(spans, client, "text_completion")
    (root,) = [span for span in spans if span.name == "text_completion tiny"]
    assert root.attributes["rpc.method"] == method


def test_replicas_log_one_object_per_line(service: Service, http: httpx.Client) -> None:
    """Serve's own first lines are written before the replica knows how."""
    assert http.get("/v1/models").status_code == 200
    asked = {"prompt": WORDS, "max_tokens": 2, "request_id": "logged once"}
    assert http.post("/v1/completions", json=asked).status_code == 200
    requests = []
    logs = Path(ray._private.worker._global_node.get_logs_dir_path()) / "serve"  # type: ignore[union-attr]
    processes: Counter[str] = Counter()
    for file in logs.glob("replica_specdec_*.log"):
        for line in file.read_text().splitlines():
            told = json.loads(line)
            assert KEY not in line
            assert WORDS not in line
            if "replica_id" in told:
                assert {"time", "level", "logger", "message"} <= told.keys()
                processes[told["process"]] += 1
            if told.get("request_id") == "logged once" and told["logger"] == "specdec.requests":
                requests.append(told)
    assert processes.keys() == {"ingress", "target", "draft"}, os.listdir(logs)
    (line,) = requests
    assert (line["output_tokens"], line["status"]) == (2, 200)
    assert line["key"] == default_name(key_digest(KEY))
