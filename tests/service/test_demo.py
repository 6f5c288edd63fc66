"""`specdec serve` as a newcomer runs it: the demo model, one command, both protocols."""

from __future__ import annotations

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from deployments.text.tokenizer import load_text_model
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc
from specdec_core import Engine, Request, SamplingParams
from specdec_core.config import CPU_DRAFT_TOKENS, FIXED_DRAFT_TOKENS, Numerics
from specdec_core.engine import AlgorithmName
from specdec_core.loading.loader import DType, LoadConfig, LoadedModel, load_model
from tests.demo_service import DemoService
from tests.service.test_service import mixed

DEMO = "smollm2-135m"
COPIED = (
    "The rain fell on the quiet town, and the river rose a little every hour until the bridge was "
    "under water. "
)
QUESTION = {"role": "user", "content": "What is the capital of France?"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def target(demo_model: Path) -> LoadedModel:
    config = LoadConfig(dtype=DType.BFLOAT16, numerics=Numerics.EXACT, kv_cache_tokens=8192)
    return load_model(str(demo_model), config)


def post(port: int, path: str, body: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{port}{path}"
    return urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()))


def test_paris_whole_and_streamed_over_both_protocols(demo: DemoService) -> None:
    body = {"model": DEMO, "messages": [QUESTION], "max_tokens": 32, "temperature": 0}
    body["return_token_ids"] = True
    with post(demo.http, "/v1/chat/completions", body) as answer:
        (choice,) = json.load(answer)["choices"]
    assert "Paris" in choice["message"]["content"]
    text, ids = "", []
    with post(demo.http, "/v1/chat/completions", body | {"stream": True}) as lines:
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
    with grpc.insecure_channel(demo.grpc_address) as channel:
        stub = pb_grpc.GenerationServiceStub(channel)
        assert list(stub.GenerateOnce(message).token_ids) == ids
        assert [i for part in stub.Generate(message) for i in part.token_ids] == ids


def test_no_draft_replica_takes_a_core_unasked(demo: DemoService) -> None:
    """The ready line says how to have the one that ships; the target says how long passes take."""
    with grpc.insecure_channel(demo.grpc_address) as channel:
        status = pb_grpc.GenerationServiceStub(channel).PoolStatus(pb.PoolStatusRequest())
    assert {replica.role for replica in status.replicas} == {"target"}


def test_sixteen_mixed_requests_equal_plain_decoding(
    demo: DemoService, target: LoadedModel
) -> None:
    asked = [fields | {"max_tokens": 8 + fields["max_tokens"] % 17} for fields in mixed(16)]

    def ask(fields: dict[str, Any]) -> list[int]:
        body = {"return_token_ids": True, **fields}
        with post(demo.http, "/v1/completions", body) as answer:
            ids: list[int] = json.load(answer)["choices"][0]["token_ids"]
            return ids

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, asked))
    for fields, served in zip(asked, answers, strict=True):
        request = _request(target, **fields)
        engine = Engine(target.model, algorithm=AlgorithmName.AUTOREGRESSIVE)
        plain = list(engine.tokens(request))
        assert served == plain, fields


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_copy_is_drafted_with_the_k_that_ships(
    demo: DemoService, demo_model: Path, target: LoadedModel, temperature: float
) -> None:
    """More than the four tokens that every policy but goodput drafts; the IDs are those of plain
    decoding."""
    prompt = list(load_text_model(str(demo_model)).encode(3 * COPIED + COPIED[:13]))
    fields = {"prompt": prompt, "max_tokens": 128, "temperature": temperature, "seed": 7}
    with post(demo.http, "/v1/completions", fields | {"return_token_ids": True}) as answer:
        found = json.load(answer)
    engine = Engine(target.model, algorithm=AlgorithmName.AUTOREGRESSIVE)
    assert found["choices"][0]["token_ids"] == list(engine.tokens(_request(target, **fields)))
    told = found["metrics"]["speculative_decoding"]
    assert told["num_spec_tokens"] == CPU_DRAFT_TOKENS
    if temperature == 0:
        assert sum(told["acceptance_histogram"][FIXED_DRAFT_TOKENS + 1 :]) > 0


def _request(target: LoadedModel, prompt: list[int], **params: Any) -> Request:
    return Request(
        request_id=f"oracle-{time.monotonic_ns()}",
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(**params),
        end_token_ids=target.end_token_ids,
    )
