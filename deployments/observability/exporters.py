"""Choose the exporters that the standard OTEL_* variables ask for.

The SDK leaves this choice to others. It reads the remaining OTEL_* variables itself (endpoint,
headers, sampler, resource, batches).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from deployments.extras import install_command
from specdec_core.errors import InvalidRequestError

_BY_PROTOCOL = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_INSTALL = install_command("otlp")


class Signal(StrEnum):
    """Kind of exported data, as the variables spell it."""

    TRACES = "TRACES"
    METRICS = "METRICS"


_KINDS: dict[Signal, type] = {Signal.TRACES: SpanExporter, Signal.METRICS: MetricExporter}


def exporter_names(environment: Mapping[str, str], signal: Signal) -> tuple[str, ...]:
    """Return the names under which packages offer the requested exporters.

    The result is empty if no exporter is requested. If only an endpoint is set, OTLP is requested.
    Raises InvalidRequestError for a protocol without an exporter.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    endpoints = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    default = "otlp" if any(environment.get(name) for name in endpoints) else "none"
    requested = environment.get(f"OTEL_{signal}_EXPORTER", "").strip() or default
    names = dict.fromkeys(name.strip() for name in requested.split(","))
    return tuple(_offered(name, environment, signal) for name in names if name not in ("", "none"))


def _offered(name: str, environment: Mapping[str, str], signal: Signal) -> str:
    if name != "otlp":
        return name
    variables = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    said = ((variable, environment.get(variable, "").strip()) for variable in variables)
    variable, protocol = next((pair for pair in said if pair[1]), ("", "grpc"))
    if protocol not in _BY_PROTOCOL:
        names = ", ".join(_BY_PROTOCOL)
        raise InvalidRequestError(f"{variable}={protocol} is not one of {names}")
    return _BY_PROTOCOL[protocol]


def check_exporters(environment: Mapping[str, str] = os.environ) -> None:
    """Raises InvalidRequestError if a requested exporter is not available."""
    for signal in Signal:
        exporter_kinds(signal, environment)


def is_export_requested(environment: Mapping[str, str] = os.environ) -> bool:
    return any(exporter_names(environment, signal) for signal in Signal)


def exporter_kinds(signal: Signal, environment: Mapping[str, str] = os.environ) -> list[Any]:
    """Return the exporter classes; they need no arguments. Raises InvalidRequestError for one that
    is not installed."""
    return [_load(name, signal) for name in exporter_names(environment, signal)]


def _load(name: str, signal: Signal) -> Any:
    """Return the exporter class. A class that is not an exporter, such as the port that
    `prometheus` opens, counts as not installed."""
    entries = entry_points(group=f"opentelemetry_{signal.lower()}_exporter", name=name)
    for kind in (one.load() for one in entries):
        if isinstance(kind, type) and issubclass(kind, _KINDS[signal]):
            return kind
    instead = _INSTALL if name in _BY_PROTOCOL.values() else "install the package that has it"
    variable = f"OTEL_{signal}_EXPORTER"
    raise InvalidRequestError(
        f"{variable} requires {name!r}, which is not installed: {instead}, or set {variable}=none"
    )
