"""A rendered set of objects, and the pods that it leads to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

Manifest = dict[str, Any]
Labels = dict[str, str]

OPERATORS_LABELS = ("ray.io/cluster", "ray.io/group", "ray.io/node-type", "ray.io/serve")
"""Of every pod of a RayCluster; the operator sets them."""


@dataclass(frozen=True)
class Pod:
    """A pod template and who makes pods of it."""

    owner: str
    labels: Labels
    spec: Manifest
    fewest: int = 1
    is_ray: bool = False

    @property
    def containers(self) -> list[Manifest]:
        return list(self.spec["containers"])

    @property
    def ports(self) -> dict[str, int]:
        """Its containers' ports by name."""
        ports = (port for one in self.containers for port in one.get("ports", ()))
        return {port["name"]: port["containerPort"] for port in ports}

    def is_selected(self, selector: Manifest) -> bool:
        """By a selector that has matchLabels alone, as all of ours."""
        assert selector.keys() <= {"matchLabels"}, f"not looked into: {selector}"
        return selector.get("matchLabels", {}).items() <= self.labels.items()


@dataclass(frozen=True)
class Objects:
    """What is applied together."""

    manifests: list[Manifest]

    def of(self, *kinds: str) -> list[Manifest]:
        return [one for one in self.manifests if one["kind"] in kinds]

    def named(self, kind: str, name: str) -> Manifest | None:
        return next((one for one in self.of(kind) if one["metadata"]["name"] == name), None)

    @property
    def service(self) -> Manifest:
        (one,) = self.of("RayService")
        return one

    @property
    def cluster(self) -> Manifest:
        return dict(self.service["spec"]["rayClusterConfig"])

    @cached_property
    def serve_config(self) -> Manifest:
        return dict(yaml.safe_load(self.service["spec"]["serveConfigV2"]))

    @property
    def settings(self) -> Manifest:
        """What the service is told: `args` of its application."""
        (application,) = self.serve_config["applications"]
        return dict(application["args"])

    def ray_pods(self) -> list[Pod]:
        """The head first."""
        head = _ray_pod("head", self.cluster["headGroupSpec"], fewest=1)
        workers = (
            _ray_pod(group["groupName"], group, fewest=group["minReplicas"])
            for group in self.cluster["workerGroupSpecs"]
        )
        return [head, *workers]

    def pods(self) -> Iterator[Pod]:
        yield from self.ray_pods()
        for one in self.of("StatefulSet", "Deployment", "Job"):
            template = one["spec"]["template"]
            labels = template["metadata"].get("labels", {})
            yield Pod(f"{one['kind']} {one['metadata']['name']}", labels, template["spec"])


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _ray_pod(name: str, group: Manifest, fewest: int) -> Pod:
    template = group["template"]
    labels = template.get("metadata", {}).get("labels", {})
    return Pod(f"group {name}", labels, template["spec"], fewest, is_ray=True)
