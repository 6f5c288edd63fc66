"""Serve's autoscaling options of each deployment, and the application's policy."""

from __future__ import annotations

from typing import Any

from deployments.config.flags import values_of
from deployments.config.scaling import Bounds
from deployments.config.service import ServiceConfig

POLICY = "deployments.autoscaling.policy:PoolPolicy"
_REPORT_S = 1.0
"""Seconds between two reports of a replica. Serve 2.60 reads the interval only here.

Its environment variables for the interval change nothing.
"""
_LOOK_BACK_S = 5.0


def replica_options(config: ServiceConfig, first: int, bounds: Bounds) -> dict[str, Any]:
    """Return the options of a deployment that has `first` replicas at the start."""
    if not config.autoscales:
        return {"num_replicas": first}
    return {"autoscaling_config": _scaled(bounds, initial_replicas=bounds.clamp(first))}


def ingress_options(config: ServiceConfig) -> dict[str, Any]:
    """Return the ingress's options. Without our policy, Serve's own scales it by its requests."""
    bounds, per_node = config.scaling.ingress_bounds, config.nodes.max_ingress_replicas_per_node
    limits = {"max_replicas_per_node": per_node} if per_node is not None else {}
    if config.autoscales:
        return {"autoscaling_config": _scaled(bounds), **limits}
    return {
        "autoscaling_config": {
            "min_replicas": bounds.least,
            "max_replicas": bounds.most,
            "target_ongoing_requests": config.thresholds.requests_per_ingress,
        },
        **limits,
    }


def policy_of(config: ServiceConfig) -> dict[str, Any]:
    """Return the policy for the application in serveConfigV2. Empty if nothing scales."""
    if not config.autoscales:
        return {}
    aims = {
        name.removeprefix("scale_"): value
        for name, value in values_of(config).items()
        if name.startswith("scale_")
    }
    pool = config.scheduler_config()
    aims |= {"window": pool.window, "max_group_size": pool.max_group_size}
    kwargs = {"cells": config.scaling.cells, "aims": aims}
    return {"autoscaling_policy": {"policy_function": POLICY, "policy_kwargs": kwargs}}


def _scaled(bounds: Bounds, **more: int) -> dict[str, Any]:
    """Return options without Serve's own delays, because the policy has its hysteresis."""
    return {
        "min_replicas": bounds.least,
        "max_replicas": bounds.most,
        "metrics_interval_s": _REPORT_S,
        "look_back_period_s": _LOOK_BACK_S,
        "upscale_delay_s": 0,
        "downscale_delay_s": 0,
        **more,
    }
