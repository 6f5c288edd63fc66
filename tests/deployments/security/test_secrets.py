"""Keys and tokens are told nowhere, and nothing of a prompt is logged."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from deployments.app import coordinator_spec, serve_config_text
from deployments.cli.main import app
from deployments.cli.serve_flags import service_config
from deployments.config.flags import declarations
from deployments.config.service import ServiceConfig
from deployments.names import MetricsCompat
from specdec.v1 import generation_pb2 as pb
from specdec_core.errors import InvalidRequestError
from specdec_core.messages import LeaseRow, RowResult, RowStatus
from tests.deployments.cell import Cell
from tests.deployments.coordinator.test_cell import until
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.http_server import TEXT, completion, server
from tests.deployments.ingress.test_grpc_api import FakeContext, api

KEY = "sk-a-key-that-must-stay-secret"
WRONG = "sk-another-key-that-is-wrong"
PROMPT = "MARKEROFAPROMPT"
IDS = ", ".join(map(str, TEXT.encode(PROMPT)))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for declared in declarations(ServiceConfig):
        monkeypatch.delenv(f"SPECDEC_{declared.name}".upper(), raising=False)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Everything that any library logs."""
    with caplog.at_level(logging.DEBUG):
        yield caplog


def check_log(logged: pytest.LogCaptureFixture, parts: Cell) -> None:
    assert logged.records
    assert parts.endpoint is not None
    text = logged.text.replace(f"name of {KEY}", "")  # what this key is called in the tests
    for secret in (KEY, WRONG, PROMPT, IDS, parts.endpoint.token):
        assert secret not in text


def described(config: ServiceConfig) -> str:
    spec = coordinator_spec(config)
    shown = (config, spec, config.deployable(), config.version(), serve_config_text(config))
    return "\n".join(f"{one!r} {one}" for one in shown)


def test_a_configuration_never_shows_its_keys(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {KEY}2\n")
    config = ServiceConfig.of(api_keys=(KEY,), api_key_file=keys)
    assert len(config.keys.named) == 2
    assert KEY not in described(config)


@pytest.mark.parametrize(
    "mistake",
    [
        {"topology": "colocated"},
        {"modle": "x", "api_key": KEY},
        {"port": "no port"},
        {"api_keys": [KEY, 3]},
        {"api_keys": {"name": KEY}},
        {"api_key_sha256": 3},
        {"speculative_config": "no object"},
    ],
)
def test_no_mistake_in_the_settings_tells_a_key(
    mistake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as pydantic words it, which is what a cluster logs, nor as the command line does."""
    monkeypatch.setenv("SPECDEC_API_KEYS", KEY)
    with pytest.raises(ValidationError) as raw:
        ServiceConfig.of(**mistake)
    assert KEY not in f"{raw.value} {raw.value!r}"
    with pytest.raises(InvalidRequestError) as worded:
        service_config(None, mistake)
    assert KEY not in str(worded.value)


def test_print_config_has_digests_only(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {KEY}2\n")
    printed = CliRunner().invoke(
        app, ["serve", "--print-config", "--api-key", KEY, "--api-key-file", str(keys)]
    )
    assert printed.exit_code == 0
    assert "alice:" in printed.output
    assert KEY not in printed.output


def test_a_key_file_with_a_mistake_is_named_by_its_line(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {KEY} and more\n")
    with pytest.raises(ValidationError, match="keys:1:") as refused:
        ServiceConfig.of(api_key_file=keys)
    assert KEY not in str(refused.value)


CHAT = {"model": "fake", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", completion(prompt=PROMPT)),
    ("/v1/completions", completion(prompt=PROMPT, stream=True, logprobs=2)),
    ("/v1/completions", completion(prompt=PROMPT, max_tokens=100_000)),
    ("/v1/completions", completion(prompt=PROMPT, temperature=-1)),
    ("/v1/completions", completion(prompt=PROMPT + "\ud800")),
    ("/v1/completions", completion(prompt=PROMPT * 100)),
    ("/v1/completions", completion(prompt={"a": PROMPT})),
    ("/v1/completions", completion(prompt=list(TEXT.encode(PROMPT)))),
    ("/v1/completions", completion(prompt=[*TEXT.encode(PROMPT), 99])),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT | {"stream": True}),
    ("/v1/chat/completions", CHAT | {"messages": [{"role": PROMPT, "content": PROMPT}]}),
    ("/v1/chat/completions", CHAT | {"chat_template": PROMPT}),
    ("/v1/chat/completions", CHAT | {"response_format": {"type": PROMPT}}),
    ("/tokenize", {"prompt": PROMPT}),
    ("/nowhere", {"prompt": PROMPT}),
]


@pytest.mark.parametrize("key", [KEY, WRONG])
async def test_http_logs_neither_keys_nor_prompts(
    key: str, logged: pytest.LogCaptureFixture
) -> None:
    async with server(keys=(KEY,), compat=MetricsCompat.VLLM) as (client, parts):
        headers = {"Authorization": f"Bearer {key}"}
        for path, body in ASKED:
            answer = await client.post(path, content=json.dumps(body), headers=headers)
            assert key not in answer.text
        text = (await client.get("/metrics", headers=headers)).text
        text = text.replace(f"name of {KEY}", "")  # what this key is called in the tests
        assert parts.endpoint is not None
        assert key not in text
        assert parts.endpoint.token not in text
        check_log(logged, parts)


def row_fails(replica: FakeReplica, row: LeaseRow) -> RowResult:
    return RowResult(sequence_id=row.sequence_id, status=RowStatus.FAILED, error="a seeded bug")


def breaks(*arguments: object) -> None:
    raise RuntimeError("a seeded bug")


@pytest.mark.parametrize(
    ("place", "behaviour", "status"),
    [
        ("tests.deployments.fake_replica.FakeReplica._run", row_fails, 500),
        ("tests.deployments.fake_replica.FakeReplica.execute", breaks, None),
        ("deployments.ingress.output.Output.take", breaks, 500),
        ("specdec_core.scheduler.Scheduler.advance", breaks, 503),
        ("specdec_core.scheduler.Scheduler.add", breaks, 503),
        ("deployments.ingress.generation.GenerationService.prepare", breaks, 500),
    ],
)
async def test_nor_when_the_service_itself_fails(
    place: str,
    behaviour: Callable[..., Any],
    status: int | None,
    logged: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`status` None: the replica is gone, and the request waits for another."""
    async with server(keys=(KEY,)) as (client, parts):
        monkeypatch.setattr(place, behaviour)
        headers = {"Authorization": f"Bearer {KEY}"}
        body = completion(prompt=PROMPT)
        answer = asyncio.create_task(client.post("/v1/completions", json=body, headers=headers))
        if status is None:
            await until(lambda: parts.loops["t0"].failure is not None)
            answer.cancel()
        else:
            assert (await answer).status_code == status
        check_log(logged, parts)


@pytest.mark.parametrize("key", [KEY, WRONG, ""])
async def test_grpc_logs_neither_keys_nor_prompts(
    key: str, logged: pytest.LogCaptureFixture
) -> None:
    asked = [
        pb.GenerateRequest(prompt=PROMPT, sampling=pb.SamplingParams(max_tokens=3)),
        pb.GenerateRequest(prompt=PROMPT, sampling=pb.SamplingParams(max_tokens=100_000)),
        pb.GenerateRequest(prompt=PROMPT, sampling=pb.SamplingParams(temperature=-1)),
        pb.GenerateRequest(prompt=PROMPT * 2000),
        pb.GenerateRequest(prompt=PROMPT, model="another"),
        pb.GenerateRequest(
            chat=pb.ChatMessages(messages=[pb.ChatMessage(role=PROMPT, content=PROMPT)])
        ),
    ]
    async with api(keys=(KEY,)) as (calls, parts):
        for message in asked:
            context = FakeContext(key=key)
            await calls.generate_once(message, context)
            assert KEY not in context.details
            assert not key or key not in context.details
        check_log(logged, parts)


async def test_the_coordinators_token_is_in_no_representation() -> None:
    async with server() as (_, parts):
        assert parts.endpoint is not None
        assert parts.endpoint.token not in f"{parts.endpoint!r} {parts.endpoint}"
