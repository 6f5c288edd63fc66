"""One mistake in what production renders to, by the place where it is made."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from tests.manifests.checks.objects import Manifest, Objects

Path = tuple[str | int, ...]
GONE = object()

CLUSTER: Path = ("RayService", "specdec", "spec", "rayClusterConfig")
HEAD: Path = (*CLUSTER, "headGroupSpec", "template", "spec", "containers", 0)
GROUP: Path = (*CLUSTER, "workerGroupSpecs", 0)
WORKER: Path = (*GROUP, "template", "spec", "containers", 0)
UPGRADE: Path = ("RayService", "specdec", "spec", "upgradeStrategy", "clusterUpgradeOptions")
SERVE: Path = ("serve_config",)
ARGS: Path = (*SERVE, "applications", 0, "args")


def spoiled(manifests: list[Manifest], path: Path, value: object) -> Objects:
    """A copy with one value set, added or removed. The path begins with kind and name of an
    object, or goes into the text that Serve gets."""
    objects = Objects(copy.deepcopy(manifests))
    if path[0] == "serve_config":
        content: Any = copy.deepcopy(objects.serve_config)
        _set(content, path[1:], value)
        objects.service["spec"]["serveConfigV2"] = yaml.safe_dump(content)
        return Objects(objects.manifests)
    kind, name, *rest = path
    _set(objects.named(str(kind), str(name)), tuple(rest), value)
    return objects


def _set(place: Any, path: Path, value: object) -> None:
    *way, last = path
    for step in way:
        place = place[step]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
