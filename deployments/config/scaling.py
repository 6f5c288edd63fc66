"""Declares the number of replicas, and when the autoscaler changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from deployments.config.flags import declarations, flag, section_of, setting
from specdec_core.messages import Role


@dataclass(frozen=True, slots=True)
class Bounds:
    """Minimum and maximum replicas of a deployment."""

    least: int
    most: int

    def clamp(self, number: int) -> int:
        return max(self.least, min(self.most, number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Loads per replica at which the autoscaler acts, and its delays."""

    window: int
    """Maximum sequences that a target admits."""
    max_group_size: int
    target_load: float = setting(0.7, gt=0, le=1)
    """Share of the time that a target should be busy with full groups."""
    kv: float = setting(0.85, gt=0, le=1)
    """Share of a replica's KV cache that should be reserved."""
    draft_busy: float = setting(0.7, gt=0, le=1)
    requests_per_ingress: float = setting(200.0, gt=0)
    least_drafted: float = setting(0.05, ge=0, le=1)
    """Minimum share of rounds with a draft replica's proposal. Below it, drafting does not pay."""
    up_delay_s: float = setting(5.0, ge=0)
    down_delay_s: float = setting(300.0, ge=0)
    zero_delay_s: float = setting(600.0, ge=0)
    """Delay before the last draft replica is removed."""
    retry_s: float = setting(1800.0, ge=0)
    """Time after which drafting that did not pay is tried again."""
    slack: float = 0.8
    """A deployment shrinks if fewer replicas would have at most this share of their thresholds."""


def thresholds_section() -> Any:
    """Return a field of Thresholds. Its settings have the prefix `scale_`."""
    declared = (d._replace(name=f"scale_{d.name}") for d in declarations(Thresholds))
    return section_of(Thresholds, declared, {"window": 1, "max_group_size": 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOptions:
    """Numbers of replicas: of each cell, and ingresses of all cells. GPUs of each replica."""

    PANEL: ClassVar[str] = "Scale"

    target_replicas: int = flag(
        1, "Replicas of the target model in every cell. Default: 1.", bounds={"ge": 1}
    )
    """Replicas at the start. They stay constant while the two bounds are not set."""
    min_target_replicas: int | None = flag(
        None,
        "Minimum target replicas of a cell. With --max-target-replicas, autoscaling is on.",
        bounds={"ge": 1},
    )
    max_target_replicas: int | None = flag(
        None, "Maximum target replicas of a cell.", bounds={"ge": 1}
    )
    draft_replicas: int | None = flag(
        None,
        "Replicas of the draft model in every cell. Default: 1 with --spec-model. For a demo "
        "model, this starts the draft that ships with it.",
        bounds={"ge": 0},
    )
    min_draft_replicas: int | None = flag(
        None,
        "Minimum draft replicas of a cell, which may be 0. With --max-draft-replicas, "
        "autoscaling is on.",
        bounds={"ge": 0},
    )
    max_draft_replicas: int | None = flag(
        None, "Maximum draft replicas of a cell.", bounds={"ge": 0}
    )
    ingress_replicas: int = flag(
        1, "Ingress replicas, which accept requests. Default: 1.", bounds={"ge": 1}
    )
    max_ingress_replicas: int = setting(4, ge=1)
    cells: int = flag(
        1,
        "Number of cells. Each has a coordinator and its own replicas. Default: 1.",
        bounds={"ge": 1},
    )

    target_num_gpus: float | None = flag(
        None,
        "GPUs of one target replica. A fraction shares a GPU; 0 uses the CPU. Default: "
        "by the GPUs of the cluster.",
        bounds={"ge": 0},
    )
    draft_num_gpus: float | None = flag(
        None,
        "GPUs of one draft replica. A fraction shares a GPU; 0 uses the CPU. Default: by "
        "the GPUs of the cluster.",
        bounds={"ge": 0},
    )
    """GPUs of one replica. None: chosen by config/gpu_allocation.py, or a CPU if Ray has no GPU."""

    def __post_init__(self) -> None:
        for role in Role:
            least = getattr(self, f"min_{role}_replicas")
            most = getattr(self, f"max_{role}_replicas")
            if (least is None) is not (most is None):
                raise ValueError(
                    f"min_{role}_replicas and max_{role}_replicas require each other: set "
                    "both or neither"
                )
            if least is not None and most < max(least, 1):
                raise ValueError(f"max_{role}_replicas={most} is less than {max(least, 1)}")

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
