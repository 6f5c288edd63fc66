"""What every pod keeps to: versions, the restricted profile, volumes and secrets that exist."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.manifests.checks.objects import Manifest, Objects, Pod

_ROOT = Path(__file__).parents[3]
_OURS = "specdec-serve"
_WRITTEN = ("/tmp", "/home/specdec")
"""All that our images write to."""
_PROBE_TIMEOUT_S = 10
"""Minimum timeout of a probe. Processes of a starved node were seen to wait for seconds."""
_PROBE_PATIENCE_S = 300
"""Minimum time of failures before a probe ends a container."""


@cache
def package_version() -> str:
    content: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    return str(content["project"]["version"])


@cache
def locked(package: str) -> str:
    """Its version in requirements.lock."""
    lines = (_ROOT / "requirements.lock").read_text().splitlines()
    (version,) = [line.partition("==")[2] for line in lines if line.startswith(f"{package}==")]
    return version


def pod_problems(objects: Objects) -> Iterator[str]:
    version = objects.cluster["rayVersion"]
    if version != locked("ray"):
        yield f"rayVersion is {version}, requirements.lock has {locked('ray')}"
    for pod in objects.pods():
        for problem in (
            *_image_problems(pod),
            *_security_problems(pod),
            *_volume_problems(objects, pod),
            *_reference_problems(objects, pod),
            *_probe_problems(pod),
        ):
            yield f"{pod.owner}: {problem}"
    yield from _store_problems(objects)
    sidecar = objects.cluster.get("autoscalerOptions")
    if sidecar is not None and not _is_restricted(sidecar.get("securityContext", {})):
        yield "the autoscaler's container is not restricted"


def _probe_problems(pod: Pod) -> Iterator[str]:
    """Probes that a starved node would fail although the container is healthy."""
    for container in pod.containers:
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind)
            if probe is None:
                continue
            timeout_s = probe.get("timeoutSeconds", 1)
            if timeout_s < _PROBE_TIMEOUT_S:
                yield (
                    f"the {kind} of {container['name']} waits {timeout_s} s for an answer: "
                    f"{_PROBE_TIMEOUT_S} s are needed"
                )
            patience_s = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
            if kind != "readinessProbe" and patience_s < _PROBE_PATIENCE_S:
                yield (
                    f"the {kind} of {container['name']} ends it after {patience_s} s: "
                    f"{_PROBE_PATIENCE_S} s are needed"
                )


def _store_problems(objects: Objects) -> Iterator[str]:
    """Redis: no pod of the service may displace it, and no drain or probe ends it."""
    values = {one["metadata"]["name"]: one["value"] for one in objects.of("PriorityClass")}
    highest = max(values.get(pod.spec.get("priorityClassName"), 0) for pod in objects.ray_pods())
    for one in objects.of("StatefulSet"):
        name, template = one["metadata"]["name"], one["spec"]["template"]
        if values.get(template["spec"].get("priorityClassName"), 0) < highest:
            yield f"{name}: a pod of the service may displace it"
        labels = template["metadata"]["labels"]
        budgets = [b["spec"]["selector"]["matchLabels"] for b in objects.of("PodDisruptionBudget")]
        if not any(selector.items() <= labels.items() for selector in budgets):
            yield f"{name}: no budget keeps a drain from it"
        if any("livenessProbe" in one for one in template["spec"]["containers"]):
            yield f"{name}: a livenessProbe may end it on a starved node"


def _image_problems(pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        name, _, tag = container["image"].rpartition(":")
        if not name or tag == "latest":
            yield f"image {container['image']} has no version"
        elif _OURS in name and tag.rpartition("-")[0] != package_version():
            yield f"image {container['image']} is not of version {package_version()}"
        elif _OURS in name and pod.is_ray:
            has_gpu = "nvidia.com/gpu" in container["resources"]["limits"]
            if tag.rpartition("-")[2] != ("gpu" if has_gpu else "cpu"):
                yield f"image {container['image']} does not fit its devices"


def _security_problems(pod: Pod) -> Iterator[str]:
    whole = pod.spec.get("securityContext", {})
    for container in [*pod.containers, *pod.spec.get("initContainers", ())]:
        if not _is_restricted({**whole, **container.get("securityContext", {})}):
            yield f"container {container['name']} is not restricted"
    if pod.owner != "group head" and pod.spec.get("automountServiceAccountToken") is not False:
        yield "it has a token of the API server, which only the autoscaler needs"


def _is_restricted(context: Manifest) -> bool:
    """Kubernetes' restricted profile, and a root file system that cannot be written."""
    return (
        context.get("allowPrivilegeEscalation") is False
        and context.get("readOnlyRootFilesystem") is True
        and context.get("runAsNonRoot") is True
        and context.get("runAsUser", 0) > 0
        and context.get("capabilities", {}).get("drop") == ["ALL"]
        and context.get("seccompProfile", {}).get("type") == "RuntimeDefault"
    )


def _volume_problems(objects: Objects, pod: Pod) -> Iterator[str]:
    claimed = objects.named("StatefulSet", pod.owner.removeprefix("StatefulSet ")) or {}
    templates = claimed.get("spec", {}).get("volumeClaimTemplates", ())
    volumes = {one["name"]: one for one in pod.spec.get("volumes", ())}
    names = {*volumes, *(one["metadata"]["name"] for one in templates)}
    for container in pod.containers:
        mounts = {one["mountPath"]: one["name"] for one in container.get("volumeMounts", ())}
        for path, name in mounts.items():
            if name not in names:
                yield f"{path} is on a volume {name} that it does not have"
        if _OURS in container["image"] and not set(_WRITTEN) <= set(mounts):
            yield f"{container['name']} needs volumes at {_WRITTEN}: its root is read-only"
    for volume in volumes.values():
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and objects.named("PersistentVolumeClaim", claim) is None:
            yield f"there is no claim {claim}"
    priority = pod.spec.get("priorityClassName")
    if priority and objects.named("PriorityClass", priority) is None:
        yield f"there is no priority class {priority}"


def _reference_problems(objects: Objects, pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        for source in container.get("envFrom", ()):
            name = source["configMapRef"]["name"]
            if objects.named("ConfigMap", name) is None:
                yield f"there is no ConfigMap {name}"
