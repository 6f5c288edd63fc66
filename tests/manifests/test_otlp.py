"""k8s/components/otlp on top of production: every pod is told of the collector and may reach it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from deployments.observability.exporters import Signal, exporter_names
from tests.manifests import tree
from tests.manifests.checks.network import network_problems
from tests.manifests.checks.objects import Manifest, Objects
from tests.manifests.checks.pods import pod_problems
from tests.manifests.checks.schemas import schema_problems


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    if tree.kustomize_command() is None:
        pytest.skip("neither kubectl nor kustomize is installed")
    folder = tmp_path_factory.mktemp("overlay")

    def to(path: Path) -> str:
        return os.path.relpath(path.resolve(), folder.resolve())

    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "specdec",
        "resources": [to(tree.K8S / "overlays" / "production")],
        "components": [to(tree.K8S / "components" / "otlp")],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    rendered = yaml.load_all(tree.render(folder), Loader=yaml.CSafeLoader)
    return Objects([dict(one) for one in rendered])


def environment_of(objects: Objects, container: Manifest) -> dict[str, str]:
    (source,) = container["envFrom"]
    found = objects.named("ConfigMap", source["configMapRef"]["name"])
    assert found is not None
    return dict(found["data"])


def test_every_pod_of_the_cluster_exports_both(objects: Objects) -> None:
    for pod in objects.ray_pods():
        environment = environment_of(objects, pod.containers[0])
        for signal in Signal:
            assert exporter_names(environment, signal) == ("otlp_proto_grpc",)
        assert "RAY_SERVE_CONTROL_LOOP_INTERVAL_S" in environment  # it is merged


def test_the_policy_lets_the_cluster_s_pods_out_to_the_port_that_they_are_told(
    objects: Objects,
) -> None:
    policy = objects.named("NetworkPolicy", "specdec-otlp")
    assert policy is not None
    assert all(pod.is_selected(policy["spec"]["podSelector"]) for pod in objects.ray_pods())
    endpoint = environment_of(objects, objects.ray_pods()[0].containers[0])[
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    ]
    host, _, port = endpoint.removeprefix("http://").partition(":")
    (rule,) = policy["spec"]["egress"]
    assert [one["port"] for one in rule["ports"]] == [int(port)]
    (peer,) = rule["to"]
    namespace = peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert host.endswith(f".{namespace}")


def test_no_check_finds_anything_wrong(objects: Objects) -> None:
    assert list(schema_problems(objects, None)) == []
    assert list(network_problems(objects)) == []
    assert list(pod_problems(objects)) == []
