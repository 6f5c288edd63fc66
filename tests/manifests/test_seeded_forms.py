"""One misspelt key or wrong type at a time: the schema of the object's kind refuses it."""

from __future__ import annotations

import pytest

from tests.manifests.checks.objects import Manifest, Objects
from tests.manifests.checks.schemas import schema_problems
from tests.manifests.spoiling import CLUSTER, GONE, GROUP, WORKER, Path, spoiled

FORMS: list[tuple[Path, object, str]] = [
    (("Service", "specdec-entry", "spec", "selectors"), {}, "selectors"),
    (("PodDisruptionBudget", "specdec-entry", "spec", "minAvailible"), 1, "minAvailible"),
    (("NetworkPolicy", "dns", "spec", "policyTypes"), "Egress", "policyTypes|Egress"),
    (("StatefulSet", "specdec-redis", "spec", "replicas"), "one", "one"),
    (("PriorityClass", "specdec-draft", "value"), GONE, "value"),
    (("Job", "specdec-models", "spec", "template", "spec", "container"), [], "container"),
    (("HTTPRoute", "specdec-http", "spec", "hostname"), "x", "hostname"),
    (
        ("HTTPRoute", "specdec-http", "apiVersion"),
        "gateway.networking.k8s.io/v1beta1",
        "was expected",
    ),
    (("GRPCRoute", "specdec-grpc", "spec", "rules", 0, "backendRefs", 0, "port"), "9000", "9000"),
    (("Gateway", "specdec", "spec", "listeners", 0, "protocol"), "GRPC", "GRPC"),
    (("Certificate", "specdec-coordinator", "spec", "usages", 0), "signatures", "signatures"),
    (("Issuer", "specdec-authority", "spec", "ca", "secret"), "x", "secret"),
    (("PodMonitor", "specdec-head", "spec", "podMetricsEndpoints", 0, "ports"), "x", "ports"),
]


@pytest.mark.parametrize(("path", "value", "words"), FORMS, ids=[path[0] for path, _, _ in FORMS])
def test_a_wrong_form_is_told(
    production: list[Manifest], path: Path, value: object, words: str
) -> None:
    alone = spoiled(production, path, value).named(str(path[0]), str(path[1]))
    assert alone is not None
    found = list(schema_problems(Objects([alone]), None))
    assert len(found) == 1
    assert str(path[0]) in found[0]
    with pytest.raises(AssertionError, match=words):
        assert not found, found[0]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("RayService", "specdec", "spec", "serveConfigV3"), "", "serveConfigV3"),
        ((*CLUSTER, "autoscalerOptions", "version"), "v3", "v3"),
        ((*WORKER, "envForm"), [], "envForm"),
        ((*GROUP, "maxReplicas"), "six", "six"),
        ((*CLUSTER, "gcsFaultToleranceOptions", "redisPasword"), {}, "redisPasword"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_operators_schema_tells_a_mistake(
    production: list[Manifest],
    rayservice_schema: Manifest,
    path: Path,
    value: object,
    words: str,
) -> None:
    objects = Objects([spoiled(production, path, value).service])
    found = list(schema_problems(objects, rayservice_schema))
    assert found
    with pytest.raises(AssertionError, match=words):
        assert not found, "\n".join(found)
