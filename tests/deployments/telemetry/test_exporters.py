"""Which exporters an environment asks for, and what is said of one that is not there."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from deployments.config import ServiceConfig
from deployments.preflight import check_start
from deployments.telemetry import exporters
from deployments.telemetry.exporters import exporter_kinds, exporter_names
from specdec_core.errors import InvalidRequestError

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, ()),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, ()),
        ({ENDPOINT: "http://collector:4317"}, ("otlp_proto_grpc",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, ("otlp_proto_grpc",)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4317"}, ()),
        ({ENDPOINT: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ()),
        ({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "True"}, ()),
        (
            {ENDPOINT: "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            ("otlp_proto_http",),
        ),
        (
            {
                ENDPOINT: "http://c:4317",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
            },
            ("otlp_proto_grpc",),
        ),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ("console", "otlp_proto_grpc")),
    ],
)
def test_the_environment_says_which_exporters(
    environment: dict[str, str], names: tuple[str, ...]
) -> None:
    assert exporter_names(environment) == names


def test_a_protocol_that_nobody_speaks_is_refused_by_name() -> None:
    environment = {ENDPOINT: "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
    with pytest.raises(InvalidRequestError, match="OTEL_EXPORTER_OTLP_PROTOCOL=http/json"):
        exporter_names(environment)


def test_an_exporter_of_the_sdk_is_found() -> None:
    assert exporter_kinds({"OTEL_TRACES_EXPORTER": "console"}) == [ConsoleSpanExporter]


def test_one_that_is_not_installed_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporters, "entry_points", lambda **asked: ())
    monkeypatch.setenv(ENDPOINT, "http://collector:4317")
    with pytest.raises(InvalidRequestError, match=r"specdec-serve\[otlp\]"):
        check_start(ServiceConfig())
