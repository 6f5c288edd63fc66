"""How a pod ends: Ray drains it within its grace, and long enough for the replicas on it."""

from __future__ import annotations

from collections.abc import Iterator

from deployments.config.node_selectors import fits
from deployments.config.service import ServiceConfig
from deployments.proxy.http_middleware import STAYS_READY_S
from tests.manifests.checks.objects import Objects, Pod

_DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
"""Ray 2.60, on SIGTERM: it tells Serve that the node is about to go, and ends its processes when
they are idle, or after so long."""
_PROXY = "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S"
"""A pod's proxy stays at least so long, and the pod with it."""
_SEEN_S = 5.0
"""Until a pod that is not ready is out of every list of endpoints."""
_TO_END_S = 5.0
"""For Ray's processes themselves."""
_SERVE_S = 5.0
"""More than graceful_shutdown_s, as deployments/app.py gives Serve; a target whose successor loads
may stay longer where its pod does."""


def ending_problems(objects: Objects) -> Iterator[str]:
    settings = ServiceConfig.of(**objects.settings)
    needed_s = settings.graceful_shutdown_s + _SERVE_S
    draining = _that_hold_streams(objects, settings)
    for pod in objects.ray_pods():
        environment = _environment(objects, pod)
        told = environment.get(_DRAIN)
        if told is None:
            yield f"{pod.owner}: {_DRAIN} is left open"
            continue
        grace_s = pod.spec.get("terminationGracePeriodSeconds", 30)
        if float(told) + _TO_END_S > grace_s:
            yield f"{pod.owner}: {told} s to drain do not fit into {grace_s} s of grace"
        proxy_s = float(environment.get(_PROXY, 30))
        if pod.owner != "group head" and proxy_s >= float(told):
            yield f"{pod.owner}: {told} s to drain, and its proxy stays for {proxy_s:g} s"
        if proxy_s < STAYS_READY_S + _SEEN_S:
            yield f"{pod.owner}: its proxy goes after {proxy_s:g} s, before that is seen"
        if pod.owner in draining and float(told) < needed_s:
            yield f"{pod.owner}: {told} s to drain are less than the replicas' {needed_s:g} s"


def _that_hold_streams(objects: Objects, settings: ServiceConfig) -> set[str]:
    """Owners of the pods that have targets or ingresses; a draft's sequences go on without it."""
    selectors = [settings.nodes.target_labels(cell) for cell in range(settings.scaling.cells)]
    selectors.append(settings.nodes.ingress_node_labels)
    return {
        f"group {group['groupName']}"
        for group in objects.cluster["workerGroupSpecs"]
        if any(fits(selector, group.get("labels", {})) for selector in selectors)
    }


def _environment(objects: Objects, pod: Pod) -> dict[str, str]:
    """A container's own variables win."""
    (container, *_) = pod.containers
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        config_map = objects.named("ConfigMap", source["configMapRef"]["name"])
        found |= config_map["data"] if config_map else {}
    return found | {one["name"]: one["value"] for one in container["env"] if "value" in one}
