"""Settings of how many replicas there are: the part of the service's that is the autoscaler's."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from deployments.config.aims import Bounds
from specdec_core.messages import Role


class ScaleSettings(BaseSettings):
    """Fields of ServiceConfig. Numbers hold for each cell; those of the ingress hold for all
    cells."""

    target_replicas: int = Field(default=1, ge=1)
    """Replicas at the start. They stay constant while the two bounds are not set."""
    min_target_replicas: int | None = Field(default=None, ge=1)
    max_target_replicas: int | None = Field(default=None, ge=1)
    draft_replicas: int | None = Field(default=None, ge=0)
    """None: 1 if there is a draft model. A number asks for the draft that ships for the model."""
    min_draft_replicas: int | None = Field(default=None, ge=0)
    max_draft_replicas: int | None = Field(default=None, ge=0)
    ingress_replicas: int = Field(default=1, ge=1)
    max_ingress_replicas: int = Field(default=4, ge=1)
    cells: int = Field(default=1, ge=1)
    """Number of coordinators. Each has its own target_replicas and draft_replicas."""

    scale_target_load: float = Field(default=0.7, gt=0, le=1)
    """Share of the time that a target should be busy with full groups."""
    scale_kv: float = Field(default=0.85, gt=0, le=1)
    """Share of a replica's KV cache that should be reserved."""
    scale_draft_busy: float = Field(default=0.7, gt=0, le=1)
    scale_requests_per_ingress: float = Field(default=200.0, gt=0)
    scale_least_drafted: float = Field(default=0.05, ge=0, le=1)
    """Minimum share of rounds with a draft replica's proposal. Below it, drafting does not pay."""
    scale_up_delay_s: float = Field(default=5.0, ge=0)
    scale_down_delay_s: float = Field(default=300.0, ge=0)
    scale_zero_delay_s: float = Field(default=600.0, ge=0)
    """Delay before the last draft replica is removed."""
    scale_retry_s: float = Field(default=1800.0, ge=0)
    """Time after which drafting that did not pay is tried again."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        for role in Role:
            least = getattr(self, f"min_{role}_replicas")
            most = getattr(self, f"max_{role}_replicas")
            if (least is None) is not (most is None):
                raise ValueError(f"min_{role}_replicas and max_{role}_replicas belong together")
            if least is not None and most < max(least, 1):
                raise ValueError(f"max_{role}_replicas={most} is less than {max(least, 1)}")
        return self

    @property
    def target_bounds(self) -> Bounds:
        return _bounds(self.target_replicas, self.min_target_replicas, self.max_target_replicas)

    @property
    def draft_bounds(self) -> Bounds:
        """Bounds of the draft replicas, if there is a draft model."""
        fixed = self.first_draft_replicas
        return _bounds(fixed, self.min_draft_replicas, self.max_draft_replicas)

    @property
    def first_draft_replicas(self) -> int:
        """Draft replicas at the start, if there is a draft model."""
        return 1 if self.draft_replicas is None else self.draft_replicas

    @property
    def ingress_bounds(self) -> Bounds:
        most = max(self.ingress_replicas, self.max_ingress_replicas)
        return Bounds(self.ingress_replicas, most)


def _bounds(fixed: int, least: int | None, most: int | None) -> Bounds:
    if least is None or most is None:
        return Bounds(fixed, fixed)
    return Bounds(least, most)
