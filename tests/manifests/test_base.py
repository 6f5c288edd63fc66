"""k8s/base: what kustomize renders is what the operator takes and what `specdec serve` runs."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from pydantic import BaseModel
from ray.serve.schema import ServeDeploySchema

from deployments.app import serve_config_text
from deployments.config import load_service_config
from tests.manifests.crd import strict_schema, with_defaults

ROOT = Path(__file__).parent.parent.parent
BASE = ROOT / "k8s" / "base"

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    """The RayService as kustomize renders it, put together by hand."""
    content: Manifest = yaml.safe_load((BASE / "rayservice.yaml").read_text())
    content["spec"]["serveConfigV2"] = (BASE / "serve_config.yaml").read_text()
    return content


@pytest.fixture(scope="module")
def rendered() -> Manifest:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    command = ["kubectl", "kustomize", str(BASE)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (content,) = yaml.safe_load_all(output)
    return dict(content)


@pytest.fixture(scope="module")
def crd_schema(rayservice_crd: Path) -> dict[str, Any]:
    crd = yaml.load(rayservice_crd.read_text(), Loader=yaml.CSafeLoader)
    (schema,) = [
        version["schema"]["openAPIV3Schema"]
        for version in crd["spec"]["versions"]
        if version["name"] == "v1"
    ]
    return dict(schema)


def _containers(manifest: Manifest) -> list[dict[str, Any]]:
    cluster = manifest["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [c for group in groups for c in group["template"]["spec"]["containers"]]


def test_serve_config_is_the_text_that_the_builder_writes() -> None:
    config = load_service_config(BASE / "service.yaml", {})
    text = (BASE / "serve_config.yaml").read_text()
    assert text == serve_config_text(config), "run `make manifests`"


def test_kustomize_puts_the_text_into_the_manifest_unchanged(
    rendered: Manifest, manifest: Manifest
) -> None:
    assert rendered["spec"]["serveConfigV2"] == manifest["spec"]["serveConfigV2"]


def test_kustomize_changes_nothing_but_images_and_labels(
    rendered: Manifest, manifest: Manifest
) -> None:
    assert rendered["metadata"]["name"] == manifest["metadata"]["name"]
    for ours, theirs in zip(_containers(manifest), _containers(rendered), strict=True):
        assert {**ours, "image": ""} == {**theirs, "image": ""}


def test_the_image_has_the_version_of_the_package(rendered: Manifest) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {container["image"] for container in _containers(rendered)}
    assert images == {f"registry.example.com/specdec-serve:{version}"}


def test_the_operators_schema_takes_the_manifest(
    manifest: Manifest, crd_schema: dict[str, Any]
) -> None:
    Draft202012Validator(strict_schema(crd_schema)).validate(with_defaults(manifest, crd_schema))


def test_the_schema_check_sees_a_misspelt_key(
    manifest: Manifest, crd_schema: dict[str, Any]
) -> None:
    spoiled = {**manifest, "spec": {**manifest["spec"], "serveConfigV3": ""}}
    with pytest.raises(ValidationError, match="serveConfigV3"):
        Draft202012Validator(strict_schema(crd_schema)).validate(with_defaults(spoiled, crd_schema))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_serve_takes_the_config_and_knows_every_key() -> None:
    content = yaml.safe_load((BASE / "serve_config.yaml").read_text())
    ServeDeploySchema.model_validate(content)
    assert list(_unknown_keys(content, ServeDeploySchema)) == []
    misspelt = {**content, "grpc_optionss": {}, "http_options": {"prot": 1}}
    assert sorted(_unknown_keys(misspelt, ServeDeploySchema)) == ["grpc_optionss", "prot"]


def _unknown_keys(content: dict[str, Any], model: type[BaseModel]) -> list[str]:
    """Serve's schema ignores keys that it does not know."""
    unknown = [key for key in content if key not in model.model_fields]
    for key, value in content.items():
        kind = model.model_fields[key].annotation if key in model.model_fields else None
        nested = [kind, *getattr(kind, "__args__", ())]
        (inner,) = [k for k in nested if isinstance(k, type) and issubclass(k, BaseModel)] or [None]
        values = value if isinstance(value, list) else [value]
        for item in values if inner else []:
            unknown += _unknown_keys(item, inner)
    return unknown


def test_both_protocols_are_reachable_on_every_pod(manifest: Manifest) -> None:
    """KubeRay's Serve service has the ports that are named serve or serve-..., nothing else."""
    config = yaml.safe_load(manifest["spec"]["serveConfigV2"])
    expected = {
        "serve": config["http_options"]["port"],
        "serve-grpc": config["grpc_options"]["port"],
    }
    for container in _containers(manifest):
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {name: ports[name] for name in expected} == expected
        assert "metrics" in ports


def test_the_rules_that_only_the_operator_checks_hold(manifest: Manifest) -> None:
    cluster = manifest["spec"]["rayClusterConfig"]
    assert len(manifest["metadata"]["name"]) <= 47
    assert tuple(map(int, cluster["rayVersion"].split(".")[:2])) >= (2, 52), "token mode needs it"
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_the_cluster_runs_the_ray_that_is_locked(manifest: Manifest) -> None:
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    assert f"ray=={manifest['spec']['rayClusterConfig']['rayVersion']}" in lock
