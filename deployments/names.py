"""What the parts of a service are called: its processes, and the application's deployments."""

from __future__ import annotations

from enum import StrEnum

from specdec_core.messages import Role


class Part(StrEnum):
    """A kind of process; the two kinds of replicas are the pool's roles."""

    TARGET = Role.TARGET.value
    DRAFT = Role.DRAFT.value
    INGRESS = "ingress"
    COORDINATOR = "coordinator"
    SERVE = "serve"
    """`specdec serve` itself."""


INGRESS = str(Part.INGRESS)
"""The deployment."""
NO_KEY = "none"
"""Name of the callers of a server that asks for no key."""


def deployment_name(role: Role, cell: int) -> str:
    """The first cell's go without a number: of a service with one cell there is nothing to tell."""
    return f"{role}-cell-{cell}" if cell else str(role)
