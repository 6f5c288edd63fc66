"""k8s/components/gateway: TLS ends at the gateway, and every route of the service passes it."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute

from deployments.api.http.routes import build_http_app
from deployments.config.service import SpecMetrics
from deployments.ingress.auth import Access
from specdec.v1 import generation_pb2 as pb
from tests.manifests import tree
from tests.manifests.checks.objects import Manifest, Objects

INSIDE_ONLY = {"/metrics"}


@pytest.fixture(scope="module")
def objects() -> Objects:
    return Objects(tree.rendered("gateway"))


@pytest.fixture(scope="module")
def routes(objects: Objects) -> dict[str, Manifest]:
    return {one["kind"]: one["spec"] for one in objects.of("HTTPRoute", "GRPCRoute")}


def test_every_listener_ends_tls_with_a_certificate(objects: Objects) -> None:
    for listener in objects.of("Gateway")[0]["spec"]["listeners"]:
        assert (listener["protocol"], listener["tls"]["mode"]) == ("HTTPS", "Terminate")
        assert listener["tls"]["certificateRefs"]


def test_each_protocol_has_a_listener_and_a_name_of_its_own(
    objects: Objects, routes: dict[str, Manifest]
) -> None:
    """A listener that has both kinds of route for one name takes only the older of them."""
    (gateway,) = objects.of("Gateway")
    names = {each["name"]: each["hostname"] for each in gateway["spec"]["listeners"]}
    for spec in routes.values():
        (parent,) = spec["parentRefs"]
        assert parent["name"] == gateway["metadata"]["name"]
        assert spec["hostnames"] == [names.pop(parent["sectionName"])]
    assert names == {}


def test_every_route_of_the_service_is_let_through_but_metrics(
    routes: dict[str, Manifest],
) -> None:
    app = build_http_app(
        None,  # type: ignore[arg-type]
        Access({}, "0.0.0.0"),
        max_body_bytes=1,
        metrics=SpecMetrics.NONE,
    )
    paths = {route.path for route in app.routes if isinstance(route, APIRoute)} | {"/openapi.json"}
    matches = [m["path"] for rule in routes["HTTPRoute"]["rules"] for m in rule["matches"]]

    def is_let_through(path: str) -> bool:
        return any(
            path == m["value"] or (m["type"] == "PathPrefix" and path.startswith(m["value"] + "/"))
            for m in matches
        )

    assert {path for path in paths if not is_let_through(path)} == INSIDE_ONLY


def test_our_grpc_service_is_let_through(routes: dict[str, Manifest]) -> None:
    rules = routes["GRPCRoute"]["rules"]
    services = {match["method"]["service"] for rule in rules for match in rule["matches"]}
    assert pb.DESCRIPTOR.services_by_name["GenerationService"].full_name in services


def test_routes_lead_to_entry_pods_of_every_cluster_of_the_service(objects: Objects) -> None:
    """During an incremental upgrade there are two clusters, and no service that knows both."""
    service = objects.named("Service", "specdec-entry")
    assert service is not None
    assert not any(key.startswith("ray.io/") for key in service["spec"]["selector"])
