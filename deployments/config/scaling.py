"""Settings of how many replicas there are: the part of the service's that is the autoscaler's."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from deployments.config.aims import Bounds
from specdec_core.messages import Role


class ScaleSettings(BaseSettings):
    """Fields of ServiceConfig. Numbers are of every cell; those of the ingress are of all."""

    target_replicas: int = Field(default=1, ge=1)
    """At the start, and for good while the two bounds are not given."""
    min_target_replicas: int | None = Field(default=None, ge=1)
    max_target_replicas: int | None = Field(default=None, ge=1)
    draft_replicas: int | None = Field(default=None, ge=0)
    """None: 1 where there is a draft model. A number asks for the one that ships for the model."""
    min_draft_replicas: int | None = Field(default=None, ge=0)
    max_draft_replicas: int | None = Field(default=None, ge=0)
    ingress_replicas: int = Field(default=1, ge=1)
    max_ingress_replicas: int = Field(default=4, ge=1)
    cells: int = Field(default=1, ge=1)
    """Coordinators, each with target_replicas and draft_replicas of its own."""

    scale_target_load: float = Field(default=0.7, gt=0, le=1)
    """Share of the time that a target is to be busy with full groups."""
    scale_kv: float = Field(default=0.85, gt=0, le=1)
    """Share of a replica's KV that is to be reserved."""
    scale_draft_busy: float = Field(default=0.7, gt=0, le=1)
    scale_requests_per_ingress: float = Field(default=200.0, gt=0)
    scale_least_drafted: float = Field(default=0.05, ge=0, le=1)
    """Where fewer rounds have a proposal by a draft replica, drafting does not pay."""
    scale_up_delay_s: float = Field(default=5.0, ge=0)
    scale_down_delay_s: float = Field(default=300.0, ge=0)
    scale_zero_delay_s: float = Field(default=600.0, ge=0)
    """Before the last draft replica goes."""
    scale_retry_s: float = Field(default=1800.0, ge=0)
    """Drafting that did not pay is tried again."""

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
        """Where there is a draft model."""
        fixed = self.first_draft_replicas
        return _bounds(fixed, self.min_draft_replicas, self.max_draft_replicas)

    @property
    def first_draft_replicas(self) -> int:
        """At the start, where there is a draft model."""
        return 1 if self.draft_replicas is None else self.draft_replicas

    @property
    def ingress_bounds(self) -> Bounds:
        most = max(self.ingress_replicas, self.max_ingress_replicas)
        return Bounds(self.ingress_replicas, most)


def _bounds(fixed: int, least: int | None, most: int | None) -> Bounds:
    if least is None or most is None:
        return Bounds(fixed, fixed)
    return Bounds(least, most)
