"""Names of a service's parts: its processes, and the application's deployments."""

from __future__ import annotations

from enum import StrEnum

from specdec_core.messages import Role


class Part(StrEnum):
    """A kind of process. The two kinds of replicas are the scheduler's roles."""

    TARGET = Role.TARGET.value
    DRAFT = Role.DRAFT.value
    INGRESS = "ingress"
    COORDINATOR = "coordinator"
    SERVE = "serve"
    """`specdec serve` itself."""


class LogFormat(StrEnum):
    """Format of a log line."""

    TEXT = "text"
    JSON = "json"


class MetricsCompat(StrEnum):
    """Naming scheme of metrics that is exported in addition to our own."""

    NONE = "none"
    VLLM = "vllm"


INGRESS = str(Part.INGRESS)
"""Name of the ingress deployment."""
NO_KEY = "none"
"""Name of the callers of a server that asks for no key."""


def deployment_name(role: Role, cell: int) -> str:
    """Return a deployment's name. The first cell's have no number, as for a service with one
    cell."""
    return f"{role}-cell-{cell}" if cell else str(role)
