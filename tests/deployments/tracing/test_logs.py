"""Log lines as JSON: what is in each, where they go, and what is in none."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from typing import Any

import pytest
from ray.serve.schema import ServeDeploySchema

from deployments.app import serve_config
from deployments.config.service import ServiceConfig
from deployments.ingress.generation import GenerationService
from deployments.names import LogFormat, Part
from deployments.observability.json_logs import about
from deployments.observability.logs import REQUESTS, begin_logs, begin_replica_logs
from deployments.observability.process import ProcessName
from tests.deployments.http_server import completion, server
from tests.deployments.tracing.memory import HEADERS, TRACE_ID, Spans

TARGET = ProcessName(role=Part.TARGET, id="target-x", cell=1)
OURS = ("deployments", "specdec_core", "specdec.requests", "ray.serve")


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """As they were before."""
    kept = [
        (logger, list(logger.handlers), logger.level, logger.propagate)
        for logger in map(logging.getLogger, OURS)
    ]
    yield
    for logger, handlers, level, propagate in kept:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


Lines = pytest.CaptureFixture[str]
"""What the process writes to its standard error."""


def objects(written: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.splitlines()]


def told(capsys: Lines) -> list[dict[str, Any]]:
    return objects(capsys.readouterr().err)


def test_a_line_is_one_object_and_says_whose_it_is(capsys: Lines) -> None:
    begin_logs(TARGET, LogFormat.JSON)
    logging.getLogger("deployments.replica.work_loop").info("registered as\n%s", "größer")
    (line,) = told(capsys)
    assert line["message"] == "registered as\ngrößer"
    assert line["level"] == "INFO"
    assert line["logger"] == "deployments.replica.work_loop"
    assert (line["process"], line["replica_id"], line["cell"]) == ("target", "target-x", 1)
    assert line["time"].endswith("+00:00")
    assert "trace_id" not in line


def test_a_traceback_is_part_of_its_line(capsys: Lines) -> None:
    begin_logs(TARGET, LogFormat.JSON)
    try:
        raise RuntimeError("device lost")
    except RuntimeError:
        logging.getLogger("specdec_core.worker.replica").exception("a lease failed")
    (line,) = told(capsys)
    assert line["exception"].splitlines()[-1] == "RuntimeError: device lost"


def test_a_line_may_be_about_another_request_than_the_task_s(capsys: Lines) -> None:
    begin_logs(TARGET, LogFormat.JSON)
    logging.getLogger("deployments").error("diverged", extra=about("req-7"))
    assert told(capsys)[0]["request_id"] == "req-7"


def test_text_is_for_people(capsys: Lines) -> None:
    begin_logs(TARGET, LogFormat.TEXT)
    logging.getLogger("deployments.replica.work_loop").info("registered")
    line = capsys.readouterr().err
    assert line.startswith("INFO ")
    assert line.endswith("deployments.replica.work_loop: registered\n")


def test_a_replica_writes_where_serve_writes_and_serve_writes_as_we_do() -> None:
    written = io.StringIO()
    behind = logging.StreamHandler(written)
    serve = logging.getLogger("ray.serve")
    serve.handlers[:] = [MemoryHandler(1, target=behind)]
    serve.setLevel(logging.INFO)
    begin_replica_logs(TARGET, LogFormat.JSON)
    logging.getLogger("deployments.replica.work_loop").info("ours")
    serve.info("POST /v1/completions 200", extra={"request_id": "of serve", "route": "/"})
    ours, theirs = objects(written.getvalue())
    assert (ours["message"], ours["replica_id"]) == ("ours", "target-x")
    assert theirs["serve_request_id"] == "of serve"
    assert "request_id" not in theirs


def test_the_lines_of_requests_can_be_left_out() -> None:
    written = io.StringIO()
    logging.getLogger("ray.serve").handlers[:] = [logging.StreamHandler(written)]
    for logs_requests in (True, False, True):
        begin_replica_logs(TARGET, LogFormat.TEXT, logs_requests=logs_requests)
        logging.getLogger(REQUESTS).info("key=%s", logs_requests)
    assert written.getvalue() == "key=True\nkey=True\n"


async def test_lines_about_a_request_carry_its_trace_and_its_id(
    capsys: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = Spans()

    def broken(self: GenerationService, *args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(GenerationService, "num_spec_tokens", broken)
    async with server(tracer=spans.tracer) as (client, _):
        begin_logs(TARGET, LogFormat.JSON)
        asked = completion(request_id="req-1")
        await client.post("/v1/completions", json=asked, headers=HEADERS)
    (line,) = [line for line in told(capsys) if line["level"] == "ERROR"]
    assert line["message"] == "a request failed unexpectedly"
    assert line["trace_id"] == f"{TRACE_ID:032x}"
    root = spans.one("text_completion fake")
    assert root.context is not None
    assert line["span_id"] == f"{root.context.span_id:016x}"


async def test_prompts_answers_and_keys_are_in_no_line(capsys: Lines) -> None:
    async with server(keys=("hunter2",), tracer=Spans().tracer) as (client, parts):
        begin_logs(TARGET, LogFormat.JSON)
        logging.getLogger("deployments").setLevel(logging.DEBUG)
        for key, prompt in (("hunter2", "SECRET"), ("hunter3", "SECRET"), ("hunter2", "")):
            headers = HEADERS | {"authorization": f"Bearer {key}"}
            body = completion(prompt=prompt, stop=["SECRET"], max_tokens=40)
            await client.post("/v1/completions", json=body, headers=headers)
            messages = [{"role": "SECRET", "content": "SECRET"}]
            await client.post("/v1/chat/completions", json={"messages": messages}, headers=headers)
        await parts.kill_coordinator()
        logging.getLogger("deployments").info("the end")
    written = capsys.readouterr().err
    assert objects(written)[-1]["message"] == "the end"
    assert "SECRET" not in written
    assert "hunter" not in written.replace("name of hunter2", "")  # of the key, which may be told
    lines = [line for line in objects(written) if line["logger"] == REQUESTS]
    assert [line["status"] for line in lines] == [200, 400, 401, 401, 400, 400]


def test_serve_s_own_processes_are_told_to_write_json_too() -> None:
    config = serve_config(ServiceConfig.of(log_format="json"))
    ServeDeploySchema.model_validate(config)
    assert config["logging_config"] == {"encoding": "JSON"}
    assert config["applications"][0]["logging_config"] == {"encoding": "JSON"}
    assert "logging_config" not in serve_config(ServiceConfig.of())
