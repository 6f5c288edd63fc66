"""What a start says of the formats in which answers are read."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.api.grpc.service import GrpcApi
from deployments.cli.serve import formats_of
from deployments.config.service import ServiceConfig
from deployments.ingress.auth import Access
from deployments.ingress_replica import begin_reading, text_model
from deployments.text.answers.choosing import choose
from specdec.v1 import generation_pb2 as pb
from tests.deployments.answering import client_of
from tests.deployments.fake_text import fake_text_model
from tests.deployments.ingress.test_client_resume import ScriptedPool, service_of
from tests.deployments.ingress.test_grpc_api import FakeContext
from tests.service.tiny_folder import save_tiny_llama


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_llama(tmp_path)


def add_response_template(folder: Path, template: object) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"response_template": template}))


def test_an_ingress_logs_its_formats_and_compiles_them(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = text_model(ServiceConfig.of(model=str(folder), tool_call_parser="hermes"))
    with caplog.at_level(logging.INFO):
        begin_reading(text)
    assert "tool calls: hermes (by flag), reasoning: none (" in caplog.text
    assert text.answers is not None
    assert "_with_calls" in vars(text.answers)


def test_a_response_template_that_is_not_valid_is_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_response_template(folder, {"start_anchor": "A", "fields": {"x": {"opne": "<"}}})
    config = ServiceConfig.of(model=str(folder))
    begin_reading(text_model(config))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "response_template is not valid and is not used" in record.message
    assert "opne" in record.message
    assert formats_of(config).warning == record.message


def test_a_model_without_a_format_compiles_nothing(folder: Path) -> None:
    text = text_model(ServiceConfig.of(model=str(folder)))
    begin_reading(text)
    assert text.answers is None


def test_clients_see_the_formats_in_the_list_of_models() -> None:
    formats = choose('<tool_call>{"name": "f"}</tool_call>', reasoning_parser="qwen3")
    service = service_of(replace(fake_text_model(), formats=formats), ScriptedPool(()))
    with client_of(service) as client:
        (card,) = client.get("/v1/models").json()["data"]
    assert (card["tool_call_parser"], card["reasoning_parser"]) == ("hermes", "qwen3")
    assert card["chosen_by"] == {"tool_call_parser": "chat_template", "reasoning_parser": "flag"}
    calls = GrpcApi(service, Access({}, "127.0.0.1"), max_body_bytes=10_000)
    (model,) = asyncio.run(calls.list_models(pb.ListModelsRequest(), FakeContext())).models
    assert (model.tool_call_parser, model.reasoning_parser) == ("hermes", "qwen3")
