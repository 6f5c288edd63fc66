"""k8s/components/gateway: TLS ends at the gateway, and every route leads to a port that answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.routing import APIRoute

from deployments.access import Access
from deployments.config import SpecMetrics
from deployments.http_api import build_http_app
from specdec.v1 import generation_pb2 as pb

ROOT = Path(__file__).parent.parent.parent
GATEWAY = ROOT / "k8s" / "components" / "gateway"
INSIDE_ONLY = {"/metrics"}

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def gateway() -> Manifest:
    content: Manifest = yaml.safe_load((GATEWAY / "gateway.yaml").read_text())
    return content


@pytest.fixture(scope="module")
def routes() -> dict[str, Manifest]:
    documents = yaml.safe_load_all((GATEWAY / "routes.yaml").read_text())
    return {document["kind"]: document["spec"] for document in documents}


@pytest.fixture(scope="module")
def serve_service() -> Manifest:
    component = yaml.safe_load((GATEWAY / "kustomization.yaml").read_text())
    (operation,) = yaml.safe_load(component["patches"][0]["patch"])
    assert operation["path"] == "/spec/serveService"
    return dict(operation["value"])


def test_every_listener_ends_tls_with_a_certificate(gateway: Manifest) -> None:
    for listener in gateway["spec"]["listeners"]:
        assert (listener["protocol"], listener["tls"]["mode"]) == ("HTTPS", "Terminate")
        assert listener["tls"]["certificateRefs"]


def test_each_protocol_has_a_listener_and_a_name_of_its_own(
    gateway: Manifest, routes: dict[str, Manifest]
) -> None:
    """A listener that has both kinds of route for one name takes only the older of them."""
    names = {each["name"]: each["hostname"] for each in gateway["spec"]["listeners"]}
    for spec in routes.values():
        (parent,) = spec["parentRefs"]
        assert parent["name"] == gateway["metadata"]["name"]
        assert spec["hostnames"] == [names.pop(parent["sectionName"])]
    assert names == {}


def test_routes_lead_to_the_ports_of_the_serve_service(
    routes: dict[str, Manifest], serve_service: Manifest
) -> None:
    service = yaml.safe_load((ROOT / "k8s" / "base" / "rayservice.yaml").read_text())
    head = service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    on_pods = {port["name"]: port["containerPort"] for port in head["ports"]}
    ports = {port["name"]: port for port in serve_service["spec"]["ports"]}
    for kind, name in (("HTTPRoute", "serve"), ("GRPCRoute", "serve-grpc")):
        assert ports[name]["port"] == ports[name]["targetPort"] == on_pods[name]
        backends = [each for rule in routes[kind]["rules"] for each in rule["backendRefs"]]
        expected = {"name": f"{service['metadata']['name']}-serve-svc", "port": on_pods[name]}
        assert backends == [expected]
    assert ports["serve-grpc"]["appProtocol"] == "kubernetes.io/h2c"


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


def test_the_patched_service_is_what_the_operator_takes(
    serve_service: Manifest, rayservice_crd: Path
) -> None:
    crd = yaml.load(rayservice_crd.read_text(), Loader=yaml.CSafeLoader)
    (version,) = [v for v in crd["spec"]["versions"] if v["name"] == "v1"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    known = spec["serveService"]["properties"]["spec"]["properties"]["ports"]["items"]
    for port in serve_service["spec"]["ports"]:
        assert port.keys() <= known["properties"].keys()
