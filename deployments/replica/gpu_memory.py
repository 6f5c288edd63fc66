"""The share of its GPU that a replica may take."""

from __future__ import annotations

import torch

from deployments.config.gpu_allocation import crowds
from deployments.config.service import ServiceConfig
from deployments.demo.models import resolve_model
from specdec_core.config import DEFAULT_GPU_MEMORY_UTILIZATION
from specdec_core.loading.files import local_folder
from specdec_core.loading.loader import companion_of
from specdec_core.loading.memory import DeviceMemory
from specdec_core.loading.memory_plan import ColocatedDraft, share_of
from specdec_core.messages import Role


def memory_share(config: ServiceConfig, role: Role, device: torch.device) -> float:
    """Return the configured share, or a part of 0.9 that leaves room for all replicas on the GPU.

    Each process computes its own part from the models' files, without seeing the other processes.
    """
    if config.loading.gpu_memory_utilization is not None:
        return config.loading.gpu_memory_utilization
    if device.type != "cuda" or not (
        config.scaling.target_num_gpus or config.scaling.draft_num_gpus
    ):
        return DEFAULT_GPU_MEMORY_UTILIZATION
    target = _needs_of(config.model, config.loading.revision, config, device)
    draft = (
        _needs_of(config.draft, config.loading.draft_revision, config, device)
        if config.draft
        else None
    )
    total = DeviceMemory.now(device).total
    shares = []
    for num_targets, num_drafts in crowds(config):
        own_count, own = (num_targets, target) if role is Role.TARGET else (num_drafts, draft)
        if own is not None and own_count:
            neighbours = (
                [target] * num_targets + [draft] * num_drafts if draft else [target] * num_targets
            )
            shares.append(share_of(own, neighbours, total, DEFAULT_GPU_MEMORY_UTILIZATION))
    return min(shares, default=DEFAULT_GPU_MEMORY_UTILIZATION)


def _needs_of(
    model: str, revision: str | None, config: ServiceConfig, device: torch.device
) -> ColocatedDraft:
    return companion_of(local_folder(resolve_model(model), revision), config.loading.dtype, device)
