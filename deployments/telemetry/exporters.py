"""Which exporters the standard OTEL_* variables ask for, as far as the SDK leaves that to others.

Everything else of them (endpoint, headers, sampler, resource, batches) the SDK reads by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from importlib.metadata import entry_points

from opentelemetry.sdk.trace.export import SpanExporter

from specdec_core.errors import InvalidRequestError

_GROUP = "opentelemetry_traces_exporter"
_BY_PROTOCOL = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_INSTALL = 'pip install "specdec-serve[otlp]"'


class Signal(StrEnum):
    """What is exported, as the variables spell it."""

    TRACES = "TRACES"
    METRICS = "METRICS"


def exporter_names(
    environment: Mapping[str, str], signal: Signal = Signal.TRACES
) -> tuple[str, ...]:
    """By which packages offer them; none where nobody asked. An endpoint alone asks for OTLP.

    Raises InvalidRequestError for a protocol that there is no exporter for.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    endpoints = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    default = "otlp" if any(environment.get(name) for name in endpoints) else "none"
    asked = environment.get(f"OTEL_{signal}_EXPORTER", "").strip() or default
    names = dict.fromkeys(name.strip() for name in asked.split(","))
    return tuple(_offered(name, environment, signal) for name in names if name not in ("", "none"))


def _offered(name: str, environment: Mapping[str, str], signal: Signal) -> str:
    if name != "otlp":
        return name
    variables = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    said = ((variable, environment.get(variable, "").strip()) for variable in variables)
    variable, protocol = next((pair for pair in said if pair[1]), ("", "grpc"))
    if protocol not in _BY_PROTOCOL:
        known = ", ".join(_BY_PROTOCOL)
        raise InvalidRequestError(f"{variable}={protocol} is none of {known}")
    return _BY_PROTOCOL[protocol]


def exporter_kinds(environment: Mapping[str, str] = os.environ) -> list[type[SpanExporter]]:
    """Raises InvalidRequestError for one that is not installed."""
    return [_load(name) for name in exporter_names(environment)]


def _load(name: str) -> type[SpanExporter]:
    found = entry_points(group=_GROUP, name=name)
    if not found:
        instead = _INSTALL if name in _BY_PROTOCOL.values() else "install the package that has it"
        raise InvalidRequestError(
            f"OTEL_TRACES_EXPORTER asks for {name!r}, which is not installed: {instead}, or set "
            "OTEL_TRACES_EXPORTER=none"
        )
    kind: type[SpanExporter] = next(iter(found)).load()
    return kind
