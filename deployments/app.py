"""Builds the Serve application: every deployment option is here, and the text that deploys it.

`serve_config` is what `specdec serve` applies and what k8s/base carries as serveConfigV2.
"""

from __future__ import annotations

import os
from typing import Any

import ray
import yaml
from ray import serve
from ray.serve import Application

from deployments.autoscaling.serve_options import ingress_options, policy_of, replica_options
from deployments.config.gpu_allocation import with_gpus
from deployments.config.service import READY_TIMEOUT_S, ServiceConfig
from deployments.coordinator.server import PortLimits
from deployments.coordinator.spec import CoordinatorSpec
from deployments.ingress.auth import is_loopback
from deployments.ingress_replica import HEALTH_CHECK_PERIOD_S, Ingress
from deployments.names import INGRESS, LogFormat, deployment_name
from deployments.replica.replica import DraftReplica, TargetReplica
from deployments.runtime.memory import STEADY_ALLOCATOR
from deployments.runtime.openmp import short_spin
from deployments.version import package_version
from deployments.wire.message_limits import most_message_bytes
from specdec_core.scheduler.fair_queue import most_waiting

APPLICATION = "specdec"
IMPORT_PATH = "deployments.app:build_app"
SERVICER_FUNCTION = "deployments.proxy.grpc_services.add_services"
_HEALTH_CHECKS: dict[str, Any] = {
    "health_check_period_s": HEALTH_CHECK_PERIOD_S,
    "health_check_timeout_s": 5,
}
"""A process that leaves three checks in a row unanswered hangs, and is replaced after 15 to 20 s.

No pass delays an answer, because passes run in a separate thread.
"""
_SUCCESSOR_S = READY_TIMEOUT_S
"""Maximum seconds that a leaving target waits for its successor to load; see WorkLoop.drain.

Without such a successor, a target that is asked to leave has ended long before. A target that hangs
is ended after this time, too.
"""
_SHORT_CALLS = 256
"""Health, status, aborts and refusals that an ingress answers in addition to full queues."""


def build_app(args: dict[str, Any]) -> Application:
    """Return the application. Settings that `args` leaves out may come from SPECDEC_* on the
    cluster, such as API keys from a Secret."""
    config = with_gpus(ServiceConfig.of(**args), gpus_of_ray())
    coordinators = coordinator_specs(config)
    replicas = [one for spec in coordinators for one in _cell(config, spec)]
    ingress: Any = serve.deployment(
        serve.ingress()(Ingress),
        name=INGRESS,
        max_ongoing_requests=_max_ongoing(config),
        ray_actor_options={
            "num_cpus": config.ingress_num_cpus,
            "label_selector": config.nodes.ingress_node_labels,
        },
        **ingress_options(config),
        **_HEALTH_CHECKS,
        graceful_shutdown_timeout_s=config.graceful_shutdown_s,
    )
    application: Application = ingress.bind(config, coordinators, *replicas)
    return application


def gpus_of_ray() -> float:
    """Return the GPUs of all nodes of the Ray that this process has joined; 0 without one."""
    return float(ray.cluster_resources().get("GPU", 0)) if ray.is_initialized() else 0.0


def coordinator_specs(config: ServiceConfig) -> tuple[CoordinatorSpec, ...]:
    """Return one specification per cell."""
    return tuple(coordinator_spec(config, cell) for cell in range(config.scaling.cells))


def coordinator_spec(config: ServiceConfig, cell: int = 0) -> CoordinatorSpec:
    pool = config.scheduler_config()
    largest = most_message_bytes(pool, config.limits.max_body_bytes)
    return CoordinatorSpec(
        cell=cell,
        num_cells=config.scaling.cells,
        application=APPLICATION,
        model_name=config.model_name,
        version=f"{package_version()}-{config.version()}",
        pool=pool,
        audit_share=config.audit_share,
        limits=config.keys.limits(cell, config.scaling.cells),
        port_limits=PortLimits(max_message_bytes=largest),
        tls=config.tls.files,
        log_format=config.telemetry.log_format,
        node_labels=config.nodes.coordinator_node_labels,
        # A service for this machine alone keeps its inner ports on this machine, too.
        host="127.0.0.1" if is_loopback(config.host) else None,
    )


def serve_config(config: ServiceConfig) -> dict[str, Any]:
    """Return the serveConfigV2 of this configuration."""
    written: dict[str, Any] = {}
    if config.telemetry.log_format is LogFormat.JSON:
        written["logging_config"] = {"encoding": "JSON"}
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": config.host, "port": config.port},
        "grpc_options": {
            "port": config.grpc_port,
            "grpc_servicer_functions": [SERVICER_FUNCTION],
            # SERVICER_FUNCTION adds a reflection service that finds methods, too.
            "enable_reflection": False,
        },
        **written,
        "applications": [
            {
                "name": APPLICATION,
                "route_prefix": "/",
                "import_path": IMPORT_PATH,
                **written,
                "args": config.deployable(),
                **policy_of(config),
            }
        ],
    }


def serve_config_text(config: ServiceConfig) -> str:
    """Return `serve_config` as YAML."""
    return yaml.safe_dump(serve_config(config), sort_keys=False)


def num_cpus_needed(config: ServiceConfig) -> int:
    """Return the logical CPUs for a Ray that is started for this application alone."""
    of_cell = config.scaling.target_bounds.most * config.target_num_cpus
    of_cell += config.num_draft_replicas * config.draft_num_cpus
    needed = config.scaling.cells * of_cell
    needed += config.scaling.max_ingress_replicas * config.ingress_num_cpus
    return max(1, -(-int(1000 * needed) // 1000))


def _max_ongoing(config: ServiceConfig) -> int:
    """Return more than the schedulers take, so that they refuse excess requests.

    Otherwise these would be left in a proxy.
    """
    num_admitted = config.scaling.target_bounds.most * config.scheduler_config().window
    num_queued = most_waiting(config.scheduler.max_queued, max(len(config.keys.named), 1))
    return config.scaling.cells * (num_admitted + num_queued) + _SHORT_CALLS


def _cell(config: ServiceConfig, coordinator: CoordinatorSpec) -> list[Application]:
    """Return a cell's replicas."""
    kinds = (TargetReplica, DraftReplica) if config.num_draft_replicas else (TargetReplica,)
    return [_replicas(kind, config, coordinator) for kind in kinds]


def _replicas(
    kind: type[TargetReplica] | type[DraftReplica],
    config: ServiceConfig,
    coordinator: CoordinatorSpec,
) -> Application:
    is_target = kind is TargetReplica
    nodes, scaling = config.nodes, config.scaling
    labels = nodes.target_labels(coordinator.cell) if is_target else nodes.draft_node_labels
    first = scaling.target_replicas if is_target else scaling.first_draft_replicas
    bounds = scaling.target_bounds if is_target else scaling.draft_bounds
    num_threads = config.threads_per_replica(os.cpu_count() or 1)
    threading = {"OMP_NUM_THREADS": str(num_threads)} | short_spin()
    deployment: Any = serve.deployment(
        kind,
        name=deployment_name(kind.role, coordinator.cell),
        **replica_options(config, first, bounds),
        ray_actor_options={
            "num_cpus": config.target_num_cpus if is_target else config.draft_num_cpus,
            "num_gpus": (scaling.target_num_gpus if is_target else scaling.draft_num_gpus) or 0,
            "label_selector": labels,
            "runtime_env": {"env_vars": threading | STEADY_ALLOCATOR},
        },
        max_constructor_retry_count=3,
        **_HEALTH_CHECKS,
        graceful_shutdown_timeout_s=config.graceful_shutdown_s + (_SUCCESSOR_S if is_target else 5),
    )
    bound: Application = deployment.bind(config, coordinator)
    return bound
