"""What the deployments of the application are called."""

from __future__ import annotations

from specdec_core.leases import Role

INGRESS = "ingress"


def deployment_name(role: Role, cell: int) -> str:
    """The first cell's go without a number: of a service with one cell there is nothing to tell."""
    return f"{role}-cell-{cell}" if cell else str(role)
