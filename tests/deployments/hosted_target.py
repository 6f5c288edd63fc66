"""A loaded model as a replica of `tests.deployments.cell`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deployments.config.service import ServiceConfig
from deployments.replica.model_host import HostedModel
from specdec_core.messages import GroupLease, GroupResult, Occupancy


def tiny_config(folder: Path, **settings: Any) -> ServiceConfig:
    """The settings of a service with the tiny model in `folder`."""
    return ServiceConfig.of(
        model=str(folder),
        device="cpu",
        dtype="float32",
        numerics="fast",
        kv_cache_tokens=4096,
        **settings,
    )


class HostedTarget:
    """Runs leases over the real model, and describes itself as the cell asks for it."""

    def __init__(self, hosted: HostedModel) -> None:
        self._runner = hosted.runner
        self.free = hosted.runner.free
        self.reset = hosted.runner.reset
        self.info = hosted.describe

    @property
    def occupancy(self) -> Occupancy:
        return self._runner.occupancy

    def execute(self, lease: GroupLease) -> GroupResult:
        return self._runner.execute(lease)
