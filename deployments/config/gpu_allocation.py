"""Chooses the GPUs that replicas ask Ray for by default, and who may share one. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from deployments.config.service import ServiceConfig
from specdec_core.errors import InvalidRequestError

_STEP = 1e-4
"""Ray counts GPUs in ten thousandths."""
_ANY_GPU = ("auto", "cuda")
"""Devices that leave the GPU to Ray. A numbered one is the user's own choice."""


class Crowd(NamedTuple):
    """Replicas that may be on one GPU at a time."""

    targets: int
    drafts: int


def with_gpus(config: ServiceConfig, num_gpus: float) -> ServiceConfig:
    """Return `config` with GPUs for every kind of replica that leaves them open.

    Every such replica gets a GPU. If there is one GPU for one target and its drafts, they get equal
    parts of it. `config` is unchanged if Ray has no GPU. Raises InvalidRequestError if there are
    too few GPUs.
    """
    if num_gpus == 0 or config.loading.device not in _ANY_GPU:
        return config
    asked = {
        "target_num_gpus": config.scaling.target_num_gpus,
        "draft_num_gpus": config.scaling.draft_num_gpus,
    }
    counts = _counts(config)
    open_ones = [name for name, asks in asked.items() if asks is None and counts[name]]
    num_open = sum(counts[name] for name in open_ones)
    left = num_gpus - sum(counts[name] * (asks or 0.0) for name, asks in asked.items())
    if not open_ones:
        return config
    if left >= num_open:
        each = 1.0
    elif num_gpus == 1 and counts["target_num_gpus"] == 1 and left >= _STEP * num_open:
        each = math.floor(left / num_open / _STEP + 1e-6) * _STEP
    else:
        raise _too_few(config, num_gpus)
    return config.replaced(**dict.fromkeys(open_ones, round(each, 4)))


def crowds(config: ServiceConfig) -> Iterator[Crowd]:
    """Every crowd that Ray may put on one GPU, with at least one replica."""
    counts = _counts(config)
    target, draft = config.scaling.target_num_gpus or 0.0, config.scaling.draft_num_gpus or 0.0
    most_targets = _fitting(1.0, target, counts["target_num_gpus"])
    for targets in range(most_targets + 1):
        drafts = _fitting(1.0 - targets * target, draft, counts["draft_num_gpus"])
        if targets or drafts:
            yield Crowd(targets, drafts)


def _fitting(room: float, each: float, count: int) -> int:
    """Return how many of `count` replicas fit into `room` if each takes `each`.

    0 if they take no GPU, because these share nothing.
    """
    if each == 0.0:
        return 0
    return min(count, int((room + _STEP / 2) / each))


def _counts(config: ServiceConfig) -> dict[str, int]:
    return {
        "target_num_gpus": config.scaling.cells * config.scaling.target_bounds.most,
        "draft_num_gpus": config.scaling.cells * config.num_draft_replicas,
    }


def _too_few(config: ServiceConfig, num_gpus: float) -> InvalidRequestError:
    targets, drafts = _counts(config).values()
    return InvalidRequestError(
        f"{targets} target and {drafts} draft replicas need a GPU each, but Ray has "
        f"{num_gpus:g}. Lower target_replicas or draft_replicas, or set target_num_gpus "
        "and draft_num_gpus. A fraction shares a GPU; 0 uses the CPU"
    )
