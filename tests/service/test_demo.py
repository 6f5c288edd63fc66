"""`specdec serve` as a newcomer runs it: the demo model, one command, both protocols."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from benchmarks.harness.ports import free_port
from benchmarks.harness.starting import SERVE
from deployments.demo_models import is_pulled, resolve_model
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc
from specdec_core import Engine, Request, SamplingParams
from specdec_core.engine import AlgorithmName
from specdec_core.models.cached_model import Feed
from specdec_core.models.loading import DType, LoadConfig, LoadedModel, load_model
from specdec_core.noise import gumbel, noise_keys
from tests.conftest import StartedAlone
from tests.service.test_service import mixed

DEMO = "smollm2-135m"
QUESTION = {"role": "user", "content": "What is the capital of France?"}
NEAR_TIE = 1e-3
"""float32 passes of other shapes move a logit by less than this: only such a gap may flip."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_pulled(DEMO), reason=f"run `specdec models pull {DEMO}`"),
]


@pytest.fixture(scope="module")
def ports(started_alone: StartedAlone) -> Iterator[tuple[int, int]]:
    with started_alone(serve()) as ports:
        yield ports


@contextlib.contextmanager
def serve() -> Iterator[tuple[int, int]]:
    """HTTP and gRPC port of a `specdec serve`; SIGTERM must end it well."""
    http_port, grpc_port = free_port(), free_port()
    ports = ["--port", str(http_port), "--grpc-port", str(grpc_port)]
    environment = {"SPECDEC_TORCH_THREADS": "1", "SPECDEC_KV_CACHE_TOKENS": "16384"}
    process = subprocess.Popen(
        [*SERVE, "--dtype", "float32", *ports],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("Ready"):
            break
    assert lines, "no ready line"
    assert f"http://127.0.0.1:{http_port}" in lines[-1]
    yield http_port, grpc_port
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    torch.set_num_threads(1)
    config = LoadConfig(dtype=DType.FLOAT32, kv_cache_tokens=8192)
    return load_model(resolve_model(DEMO), config)


def post(port: int, path: str, body: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{port}{path}"
    return urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()))


def test_paris_whole_and_streamed_over_both_protocols(ports: tuple[int, int]) -> None:
    body = {"model": DEMO, "messages": [QUESTION], "max_tokens": 32, "temperature": 0}
    body["return_token_ids"] = True
    with post(ports[0], "/v1/chat/completions", body) as answer:
        (choice,) = json.load(answer)["choices"]
    assert "Paris" in choice["message"]["content"]
    text, ids = "", []
    with post(ports[0], "/v1/chat/completions", body | {"stream": True}) as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                (part,) = json.loads(line.removeprefix(b"data: "))["choices"]
                text += part["delta"].get("content", "")
                ids += part.get("token_ids", [])
    assert (text, ids) == (choice["message"]["content"], choice["token_ids"])
    message = pb.GenerateRequest(
        chat=pb.ChatMessages(messages=[pb.ChatMessage(**QUESTION)]),
        sampling=pb.SamplingParams(temperature=0, max_tokens=32),
    )
    with grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
        stub = pb_grpc.GenerationServiceStub(channel)
        assert list(stub.GenerateOnce(message).token_ids) == ids
        assert [i for part in stub.Generate(message) for i in part.token_ids] == ids


def test_no_draft_replica_takes_a_core_unasked(ports: tuple[int, int]) -> None:
    """The ready line says how to have the one that ships; the target says how long passes take."""
    with grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
        status = pb_grpc.GenerationServiceStub(channel).PoolStatus(pb.PoolStatusRequest())
    assert {replica.role for replica in status.replicas} == {"target"}


@pytest.mark.parametrize("name", ["http_client.py", "grpc_client.py"])
def test_the_examples_answer(ports: tuple[int, int], name: str) -> None:
    example = Path(__file__).parents[2] / "examples" / name
    is_http = name.startswith("http")
    address = f"http://127.0.0.1:{ports[0]}" if is_http else f"127.0.0.1:{ports[1]}"
    command = [sys.executable, str(example), address]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Paris" in output


def test_sixteen_mixed_requests_equal_plain_decoding(
    ports: tuple[int, int], target: LoadedModel
) -> None:
    asked = [fields | {"max_tokens": 8 + fields["max_tokens"] % 17} for fields in mixed(16)]

    def ask(fields: dict[str, Any]) -> list[int]:
        body = {"return_token_ids": True, **fields}
        with post(ports[0], "/v1/completions", body) as answer:
            ids: list[int] = json.load(answer)["choices"][0]["token_ids"]
            return ids

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, asked))
    for fields, served in zip(asked, answers, strict=True):
        request = _request(target, **fields)
        engine = Engine(target.model, algorithm=AlgorithmName.AUTOREGRESSIVE)
        plain = list(engine.tokens(request))
        if served != plain:
            gap = _top_two_gap(target, request, served, plain)
            print(f"near tie: {fields} differs where the two best choices are {gap} apart")
            assert gap < NEAR_TIE


def _request(target: LoadedModel, prompt: list[int], **params: Any) -> Request:
    return Request(
        request_id=f"oracle-{time.monotonic_ns()}",
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(**params),
        end_token_ids=target.end_token_ids,
    )


def _top_two_gap(
    target: LoadedModel, request: Request, served: list[int], plain: list[int]
) -> float:
    """Distance between the two best choices at the first difference, noise included."""
    pairs = zip(served, plain, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    assert same is not None, "one output is the beginning of the other"
    ids = [*request.prompt_token_ids, *plain[:same]]
    slot = target.model.allocate()
    logits = target.model.score([Feed(slot, ids, 1)])[:, : target.model.vocab_size]
    target.model.free(slot)
    if not request.params.is_greedy:
        keys = noise_keys([(request.params.seed, len(ids))], logits.device)
        vocabulary = torch.arange(logits.shape[1], dtype=torch.int32)
        logits = logits + request.params.temperature * gumbel(keys, vocabulary)
    best, second = logits[0].topk(2).values.tolist()
    return float(best - second)
