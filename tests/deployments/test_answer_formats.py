"""What a start says of the formats in which answers are read."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from deployments.config import ServiceConfig
from deployments.ingress_replica import begin_reading, text_model
from deployments.serve_command import formats_of
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
    text = text_model(ServiceConfig(model=str(folder), tool_call_parser="hermes"))
    with caplog.at_level(logging.INFO):
        begin_reading(text)
    assert "tool calls: hermes (by flag), reasoning: none (" in caplog.text
    assert text.answers is not None
    assert "_with_calls" in vars(text.answers)


def test_a_response_template_that_is_not_valid_is_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_response_template(folder, {"start_anchor": "A", "fields": {"x": {"opne": "<"}}})
    config = ServiceConfig(model=str(folder))
    begin_reading(text_model(config))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "response_template is not valid and is not used" in record.message
    assert "opne" in record.message
    assert formats_of(config).warning == record.message


def test_a_model_without_a_format_compiles_nothing(folder: Path) -> None:
    text = text_model(ServiceConfig(model=str(folder)))
    begin_reading(text)
    assert text.answers is None
