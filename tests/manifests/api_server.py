"""An API server in a hundred lines: discovery and server-side apply, enough for a real kubectl.

It keeps what it is given if the schemas of its kind take it, and knows which kinds live in a
namespace and which namespaces there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from tests.manifests.checks.objects import Manifest, Objects
from tests.manifests.checks.schemas import schema_problems


class Resource(NamedTuple):
    """A kind and where it is found."""

    group_version: str
    kind: str
    plural: str
    is_namespaced: bool = True


RESOURCES = (
    Resource("v1", "Namespace", "namespaces", False),
    Resource("v1", "ConfigMap", "configmaps"),
    Resource("v1", "Service", "services"),
    Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Resource("apps/v1", "StatefulSet", "statefulsets"),
    Resource("batch/v1", "Job", "jobs"),
    Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False),
    Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    Resource("ray.io/v1", "RayService", "rayservices"),
    Resource("gateway.networking.k8s.io/v1", "Gateway", "gateways"),
    Resource("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes"),
    Resource("gateway.networking.k8s.io/v1", "GRPCRoute", "grpcroutes"),
    Resource("cert-manager.io/v1", "Issuer", "issuers"),
    Resource("cert-manager.io/v1", "Certificate", "certificates"),
    Resource("monitoring.coreos.com/v1", "PodMonitor", "podmonitors"),
)


class ApiServer(ThreadingHTTPServer):
    """`kept` has what was applied, by its path."""

    def __init__(self, rayservice_schema: Manifest) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rayservice_schema = rayservice_schema
        self.kept: dict[str, Manifest] = {"/api/v1/namespaces/default": {}}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def refusal(self, path: str, manifest: Manifest) -> str | None:
        """Why an object is not taken at its path."""
        resource, namespace = _place(path)
        if (resource.group_version, resource.kind) != (manifest["apiVersion"], manifest["kind"]):
            return f"{manifest['kind']} is not kept at {path}"
        if namespace is not None and f"/api/v1/namespaces/{namespace}" not in self.kept:
            return f"there is no namespace {namespace}"
        problems = list(schema_problems(Objects([manifest]), self.rayservice_schema))
        return "; ".join(problems) or None


@contextmanager
def running(rayservice_schema: Manifest) -> Iterator[ApiServer]:
    server = ApiServer(rayservice_schema)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _place(path: str) -> tuple[Resource, str | None]:
    """Resource and namespace of an object's path. Raises LookupError."""
    parts = path.strip("/").split("/")
    group_version, rest = (
        ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
    )
    namespace, plural = (rest[1], rest[2]) if len(rest) == 4 else (None, rest[0])
    for one in RESOURCES:
        if (one.group_version, one.plural) == (group_version, plural):
            return one, namespace
    raise LookupError(path)


def _discovered(path: str) -> Manifest | None:
    versions = {one.group_version for one in RESOURCES}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [_group(each) for each in sorted(versions - {"v1"})]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    group_version = path.removeprefix("/apis/").removeprefix("/api/")
    if group_version not in versions:
        return None
    resources = [
        {
            "name": one.plural,
            "singularName": one.kind.lower(),
            "kind": one.kind,
            "namespaced": one.is_namespaced,
            "verbs": ["create", "get", "patch"],
        }
        for one in RESOURCES
        if one.group_version == group_version
    ]
    head = {"kind": "APIResourceList", "apiVersion": "v1"}
    return {**head, "groupVersion": group_version, "resources": resources}


def _group(group_version: str) -> Manifest:
    name, _, version = group_version.partition("/")
    told = {"groupVersion": group_version, "version": version}
    return {"name": name, "versions": [told], "preferredVersion": told}


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        found = _discovered(path) or self.server.kept.get(path)
        if found is None:
            self._fail(404, f"{path} is not here")
        else:
            self._answer(200, found)

    def do_PATCH(self) -> None:
        path = urlsplit(self.path).path
        text = self.rfile.read(int(self.headers["Content-Length"]))
        manifest = dict(yaml.safe_load(text))
        refusal = self.server.refusal(path, manifest)
        if refusal is not None:
            self._fail(422, refusal)
            return
        self.server.kept[path] = manifest
        self._answer(201, manifest)

    def _fail(self, status: int, words: str) -> None:
        told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": words}
        self._answer(status, {**told, "reason": "Invalid", "code": status})

    def _answer(self, status: int, content: Manifest) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: kubectl tells what went wrong."""
