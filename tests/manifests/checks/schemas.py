"""Every object against the schema of its kind, unknown keys refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator

from tests.manifests.checks.objects import Manifest, Objects, name_of
from tests.manifests.crd import strict_schema, with_defaults

KUBERNETES = "1.34"
_OWN = Path(__file__).parents[1] / "schemas"


def schema_problems(objects: Objects, rayservice_schema: Manifest | None) -> Iterator[str]:
    """`rayservice_schema` None: RayServices are left out."""
    for manifest in objects.manifests:
        for problem in _problems(manifest, rayservice_schema):
            yield f"{name_of(manifest)}: {problem}"


def _problems(manifest: Manifest, rayservice_schema: Manifest | None) -> Iterator[str]:
    if manifest["kind"] == "RayService":
        if rayservice_schema is not None:
            stored = with_defaults(manifest, rayservice_schema)
            yield from _differences(stored, rayservice_schema)
    elif "." in manifest["apiVersion"] and not _is_kubernetes(manifest["apiVersion"]):
        yield from _of_others(manifest)
    else:
        yield from _of_kubernetes(manifest)


def _is_kubernetes(api_version: str) -> bool:
    """gateway.networking.k8s.io is no part of Kubernetes itself."""
    group = api_version.partition("/")[0]
    return group.endswith(".k8s.io") and not group.startswith("gateway.")


def _of_kubernetes(manifest: Manifest) -> Iterator[str]:
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield str(error)
    except kubernetes_validate.SchemaNotFoundError as error:
        yield f"Kubernetes {KUBERNETES} has no {manifest['apiVersion']}: {error}"


def _of_others(manifest: Manifest) -> Iterator[str]:
    path = _OWN / f"{manifest['kind']}.yaml"
    if not path.is_file():
        yield f"there is no schema for {manifest['apiVersion']}"
        return
    yield from _differences(manifest, _own_schema(path))


@lru_cache
def _own_schema(path: Path) -> Manifest:
    """The file's properties and what every object has."""
    content = yaml.safe_load(path.read_text())
    text = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    known = {"name": text, "namespace": text, "labels": texts, "annotations": texts}
    return {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": content["apiVersion"]},
            "kind": {"const": path.stem},
            "metadata": {"type": "object", "properties": known, "required": ["name"]},
            "spec": content["spec"],
        },
    }


def _differences(manifest: Any, schema: Manifest) -> Iterator[str]:
    for error in Draft202012Validator(strict_schema(schema)).iter_errors(manifest):
        yield f"{error.json_path}: {error.message[:300]}"
