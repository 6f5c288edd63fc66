"""What KubeRay 1.7 refuses by itself, beyond its CRD: the service would be stuck as invalid."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.manifests.checks.objects import Manifest, Objects

_MAX_NAME = 47
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_TOKEN_RAY = (2, 52)
_COUNTED_BY_RAY_START = {"num-cpus", "num-gpus", "memory", "resources"}
_GATED = ("networkPolicy", "tlsOptions", "historyServerOptions")
_REDIS_ENVIRONMENT = {"RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "REDIS_USERNAME"}


def operator_problems(objects: Objects) -> Iterator[str]:
    yield from _name_problems(objects.service)
    yield from _head_problems(objects)
    yield from _group_problems(objects)
    yield from _auth_problems(objects.cluster)
    yield from _autoscaler_problems(objects)
    yield from _upgrade_problems(objects)
    for gated in _GATED:
        if gated in objects.cluster:
            yield f"{gated} needs a feature gate that is off by default"


def _name_problems(service: Manifest) -> Iterator[str]:
    name = service["metadata"]["name"]
    if len(name) > _MAX_NAME:
        yield f"the name has {len(name)} characters, {_MAX_NAME} are allowed"
    if not _DNS_1035.fullmatch(name):
        yield f"{name!r} is no DNS-1035 label"


def _head_problems(objects: Objects) -> Iterator[str]:
    head = objects.cluster["headGroupSpec"]
    if head.get("headService", {}).get("metadata", {}).get("name"):
        yield "headService.metadata.name must be left out"
    set_by_operator = _environment(head) & _REDIS_ENVIRONMENT
    has_password = "redis-password" in head["rayStartParams"]
    annotations = objects.service["metadata"].get("annotations", {})
    if set_by_operator or has_password or "ray.io/ft-enabled" in annotations:
        yield "Redis is told by gcsFaultToleranceOptions alone"


def _group_problems(objects: Objects) -> Iterator[str]:
    cluster = objects.cluster
    names = [group["groupName"] for group in cluster["workerGroupSpecs"]]
    if len(set(names)) < len(names):
        yield f"two groups have one name: {names}"
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        name, params = group.get("groupName", "head"), group["rayStartParams"]
        if group.get("resources") and params.keys() & _COUNTED_BY_RAY_START:
            yield f"group {name}: resources both in rayStartParams and in resources"
        if "labels" in params:
            yield f"group {name}: labels are a field of the group, not of rayStartParams"
        if any(not isinstance(value, str) for value in params.values()):
            yield f"group {name}: rayStartParams are strings"
    for group in cluster["workerGroupSpecs"]:
        if "scaleStrategy" not in group:
            # The operator writes it, owns the list of groups then, and a second apply is refused.
            yield f"group {group['groupName']}: scaleStrategy is left to the operator"
        fewest, now, most = (group[key] for key in ("minReplicas", "replicas", "maxReplicas"))
        if not fewest <= now <= most:
            yield f"group {group['groupName']}: not {fewest} <= {now} <= {most} replicas"


def _auth_problems(cluster: Manifest) -> Iterator[str]:
    options = cluster.get("authOptions", {})
    version = tuple(int(part) for part in cluster.get("rayVersion", "0.0").split(".")[:2])
    if options.get("mode") == "token" and version < _TOKEN_RAY:
        yield f"token authentication needs rayVersion {_TOKEN_RAY} or later, not {version}"
    if options.get("enableK8sTokenAuth"):
        yield "enableK8sTokenAuth is not allowed in a RayService"


def _autoscaler_problems(objects: Objects) -> Iterator[str]:
    cluster = objects.cluster
    if cluster.get("autoscalerOptions", {}).get("version") != "v2":
        return
    if "RAY_enable_autoscaler_v2" in _environment(cluster["headGroupSpec"]):
        yield "RAY_enable_autoscaler_v2 and autoscalerOptions.version say the same thing twice"
    for pod in objects.ray_pods():
        if pod.spec.get("restartPolicy", "Never") != "Never":
            yield f"{pod.owner}: autoscaler v2 needs restartPolicy Never"


def _upgrade_problems(objects: Objects) -> Iterator[str]:
    spec = objects.service["spec"]
    strategy = spec.get("upgradeStrategy", {})
    if strategy.get("type") != "NewClusterWithIncrementalUpgrade":
        return
    if not objects.cluster.get("enableInTreeAutoscaling"):
        yield "an incremental upgrade needs enableInTreeAutoscaling"
    if "serveService" in spec:
        yield "serveService is ignored by an incremental upgrade"
    options = strategy.get("clusterUpgradeOptions", {})
    missing = {"gatewayClassName", "stepSizePercent", "intervalSeconds"} - options.keys()
    if missing:
        yield f"an incremental upgrade needs {sorted(missing)}"
        return
    surge = options.get("maxSurgePercent", 100)
    if not 0 < options["stepSizePercent"] <= surge <= 100:
        yield f"not 0 < stepSizePercent {options['stepSizePercent']} <= maxSurgePercent {surge}"
    if options["intervalSeconds"] <= 0:
        yield "intervalSeconds must be more than 0"


def _environment(group: Manifest) -> set[str]:
    container = group["template"]["spec"]["containers"][0]
    return {variable["name"] for variable in container.get("env", ())}
