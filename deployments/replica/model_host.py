"""Loads a replica's model. Only this module and gpu_memory.py of the service import torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from deployments.config.service import ServiceConfig
from deployments.demo.models import resolve_model
from deployments.replica.gpu_memory import memory_share
from deployments.runtime.memory import trim
from deployments.text.grammar_workers import GrammarThreads
from deployments.text.grammars import Compiler
from deployments.text.tokenizer import load_text_model
from specdec_core.loading.loader import LoadedModel, device_of, load_model, timed
from specdec_core.loading.profiler import rows_of_a_group
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.model import replica_info
from specdec_core.worker.ranks import RankGroup
from specdec_core.worker.replica import Replica


@dataclass(frozen=True, slots=True)
class HostedModel:
    """A loaded model, ready to run leases."""

    runner: Replica
    ranks: RankGroup | None
    """The processes that run its passes; None if this is the only one."""
    loaded: LoadedModel
    role: Role
    max_num_seqs: int
    """Rows of a group if the settings leave them open, otherwise 0."""

    def describe(self, replica_id: str, incarnation: int) -> ReplicaInfo:
        model = self.loaded.model
        return replica_info(
            model,
            self.role,
            replica_id,
            incarnation,
            model_digest=self.loaded.digest,
            fingerprint=self.loaded.fingerprint,
            numerics=model.numerics,
            device=accelerator_name(model.device),
            max_num_seqs=self.max_num_seqs,
        )


def accelerator_name(device: torch.device) -> str:
    """Return a GPU's UUID, whichever number a process knows the GPU by.

    Empty on a CPU, where processes run in parallel.
    """
    if device.type != "cuda":
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def device_name(config: ServiceConfig, role: Role) -> str:
    """Return the device of a replica. Without a GPU from Ray, it leaves visible GPUs to others."""
    num_gpus = (
        config.scaling.target_num_gpus if role is Role.TARGET else config.scaling.draft_num_gpus
    )
    return config.loading.device if num_gpus or config.loading.device != "auto" else "cpu"


def host_model(
    config: ServiceConfig,
    role: Role,
    num_threads: int,
    on_stage: Callable[[str], None] | None = None,
    ranks: RankGroup | None = None,
) -> HostedModel:
    """Load the role's model, as rank 0 of `ranks`; None means that it is the only one.

    Call it in the thread that will run the leases.
    """
    loaded = _load(config, role, num_threads, on_stage)
    # Draft and target share the tokenizer: a grammar means the same to both.
    grammars = Compiler(
        lambda: load_text_model(resolve_model(config.model), revision=config.loading.revision),
        config.limits.grammar_limits,
        GrammarThreads(),
    )
    trim()  # what reading and packing weights has left: twice the demo model
    loaded = timed(loaded, role)
    grammars.begin()
    model = loaded.model if ranks is None else ranks.lead(loaded.model)
    is_open = role is Role.TARGET and config.scheduler.max_num_seqs is None
    return HostedModel(
        runner=Replica(model, role, grammars),
        ranks=ranks,
        loaded=loaded,
        role=role,
        max_num_seqs=rows_of_a_group(loaded.model) if is_open else 0,
    )


def follow(config: ServiceConfig, role: Role, num_threads: int, group: RankGroup) -> None:
    """Load the role's model on a rank other than 0, and run its passes until the replica ends."""
    group.follow(_load(config, role, num_threads).model)


def _load(
    config: ServiceConfig,
    role: Role,
    num_threads: int,
    on_stage: Callable[[str], None] | None = None,
) -> LoadedModel:
    torch.set_num_threads(num_threads)
    is_target = role is Role.TARGET
    path = config.model if is_target else config.draft
    assert path is not None, "draft replicas exist only with a draft model"
    pool = config.scheduler_config()
    device = device_name(config, role)
    loading = replace(
        config.loading,
        device=device,
        gpu_memory_utilization=memory_share(config, role, device_of(device)),
    )
    load = loading.load_config() if is_target else loading.draft_config()
    max_choices = pool.max_choices if is_target else pool.max_group_size
    return load_model(
        resolve_model(path), replace(load, on_stage=on_stage, max_choices=max_choices)
    )
