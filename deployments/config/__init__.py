"""Settings of a service, and flags that its commands share."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Import ServiceConfig under its former name. Records of the last release are pickled by it."""
    if name == "ServiceConfig":
        from deployments.config.service import ServiceConfig

        return ServiceConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
