"""Which exporters an environment asks for, and what is said of one that is not there."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from deployments.config.service import ServiceConfig
from deployments.names import Part
from deployments.observability import exporters
from deployments.observability.exporters import Signal, exporter_kinds, exporter_names
from deployments.observability.process import ProcessName
from deployments.observability.tracing.provider import begin_tracing
from specdec_core.errors import InvalidRequestError
from tests.deployments.checked import check_start

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SOME_PROCESS = ProcessName(role=Part.INGRESS, id="x")


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
    assert exporter_names(environment, Signal.TRACES) == names


@pytest.mark.parametrize("signal", Signal)
def test_a_protocol_that_nobody_speaks_is_refused_by_name(signal: Signal) -> None:
    environment = {ENDPOINT: "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
    with pytest.raises(InvalidRequestError, match="OTEL_EXPORTER_OTLP_PROTOCOL=http/json"):
        exporter_names(environment, signal)
    environment[f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"] = "carrier/pigeon"
    with pytest.raises(InvalidRequestError, match=f"{signal}_PROTOCOL=carrier/pigeon"):
        exporter_names(environment, signal)


def test_an_exporter_of_the_sdk_is_found() -> None:
    environment = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
    assert exporter_kinds(Signal.TRACES, environment) == [ConsoleSpanExporter]
    assert exporter_kinds(Signal.METRICS, environment) == [ConsoleMetricExporter]


@pytest.mark.parametrize("signal", Signal)
def test_one_that_is_not_installed_is_refused_before_anything_starts(
    signal: Signal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporters, "entry_points", lambda **asked: ())
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "http://collector:4317")
    for start in (
        lambda: check_start(ServiceConfig.of()),
        lambda: begin_tracing(SOME_PROCESS),
    ):
        with pytest.raises(InvalidRequestError, match=rf"OTEL_{signal}_EXP.*pip install .*otlp"):
            start()


def test_what_opens_a_port_is_no_exporter() -> None:
    """Ray brings the package: it would listen for Prometheus beside Ray's own port."""
    with pytest.raises(InvalidRequestError, match="OTEL_METRICS_EXPORTER requires 'prometheus'"):
        exporter_kinds(Signal.METRICS, {"OTEL_METRICS_EXPORTER": "prometheus"})
