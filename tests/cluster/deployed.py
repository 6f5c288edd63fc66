"""What is applied: k8s/overlays/rehearsal, the secrets that an operator makes, and a client."""

from __future__ import annotations

import base64
import copy
import json
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from deployments.autoscaling.serve_options import replica_options
from deployments.config.scaling import Bounds
from deployments.config.service import ServiceConfig
from deployments.names import deployment_name
from specdec_core.messages import Role
from tests.cluster.kubectl import Manifest, serves_kinds
from tests.deployments.tls.authority import Authority
from tests.manifests.tree import K8S, render

NAMESPACE = "specdec-rehearsal"
CLIENTS = "specdec-rehearsal-clients"
FOREIGN = "specdec-rehearsal-foreign"
SERVICE = "specdec"
CLIENT_POD = "client"
_IN_POD = Path(__file__).parent / "in_pod"


class Deployed:
    """The objects of the overlay, and what is changed in them by and by."""

    def __init__(self, manifests: Path | None = None, image: str | None = None) -> None:
        """`manifests`: the rendered overlay of another release, instead of this one's.
        `image`: replaces the product's image in them."""
        self.key = secrets.token_hex(16)
        text = manifests.read_text() if manifests else render(K8S / "overlays" / "rehearsal")
        rendered = [one for one in yaml.safe_load_all(text) if one]
        known = serves_kinds()
        self.left_out = sorted({one["kind"] for one in rendered if one["kind"] not in known})
        """Kinds that this cluster does not know: their operators are not installed."""
        self.objects: list[Manifest] = [one for one in rendered if one["kind"] in known]
        if image is not None:
            self._replace(self.image, image)

    def _replace(self, former: str, image: str) -> None:
        text = yaml.safe_dump_all(self.objects, sort_keys=False)
        text = text.replace(f"image: {former}\n", f"image: {image}\n")
        self.objects = list(yaml.safe_load_all(text))

    @property
    def service(self) -> Manifest:
        (service,) = [one for one in self.objects if one["kind"] == "RayService"]
        return service

    @property
    def namespaced(self) -> list[Manifest]:
        """Everything but the namespace itself."""
        return [one for one in self.objects if one["kind"] != "Namespace"]

    def take_key(self, secret: Manifest) -> None:
        """That of an earlier run, which the pods have read."""
        self.key = base64.b64decode(secret["data"]["keys"]).decode()

    def with_settings(self, bounds: Bounds | None = None, **settings: Any) -> Manifest:
        """The RayService with other settings of the application: a redeploy. Bounds of each cell's
        targets that are given here are none: Serve takes them without one."""
        service = copy.deepcopy(self.service)
        config = yaml.safe_load(service["spec"]["serveConfigV2"])
        (application,) = config["applications"]
        application["args"].update(settings)
        if bounds is not None:
            args = ServiceConfig.of(**application["args"])
            options = replica_options(args, args.scaling.target_replicas, bounds)
            names = [deployment_name(Role.TARGET, cell) for cell in range(args.scaling.cells)]
            application["deployments"] = [{"name": name, **options} for name in names]
        service["spec"]["serveConfigV2"] = yaml.safe_dump(config, sort_keys=False)
        return service

    def with_environment(self, name: str, value: str) -> Manifest:
        """The RayService with one more variable in every pod: another cluster."""
        service = copy.deepcopy(self.service)
        cluster = service["spec"]["rayClusterConfig"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            container = group["template"]["spec"]["containers"][0]
            container["env"] = [*container.get("env", ()), {"name": name, "value": value}]
        return service

    @property
    def image(self) -> str:
        head = self.service["spec"]["rayClusterConfig"]["headGroupSpec"]
        return str(head["template"]["spec"]["containers"][0]["image"])

    def namespaces(self) -> list[Manifest]:
        """Of the service, of its clients, and one that may not call it."""
        of_service = [one for one in self.objects if one["kind"] == "Namespace"]
        labels = {CLIENTS: {"specdec.io/clients": "true"}, FOREIGN: {}}
        others = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": label}}
            for name, label in labels.items()
        ]
        return of_service + others

    def secrets(self) -> list[Manifest]:
        """What k8s/README.md says that an operator makes, and the certificate that cert-manager
        would write where it is not."""
        made = [
            _secret("specdec-api-keys", {"keys": self.key.encode()}),
            _secret("specdec-redis", {"password": secrets.token_hex(16).encode()}),
        ]
        if "Certificate" in self.left_out:
            made.append(_secret("specdec-coordinator-tls", _certificate()))
        return made

    def clients(self, questions: Sequence[Manifest]) -> list[Manifest]:
        """A pod that asks, and one in a namespace that may not."""
        files = {
            "load.py": (_IN_POD / "load.py").read_text(),
            "questions.jsonl": "".join(json.dumps(one) + "\n" for one in questions),
        }
        return [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "client", "namespace": CLIENTS},
                "data": files,
            },
            self._pod(CLIENTS, [{"name": "client", "configMap": {"name": "client"}}]),
            self._pod(FOREIGN, [{"name": "client", "emptyDir": {}}]),
        ]

    def _pod(self, namespace: str, volumes: list[Manifest]) -> Manifest:
        container = {
            "name": "client",
            "image": self.image,
            "command": ["sleep", "infinity"],
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "client", "mountPath": "/client"}],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": CLIENT_POD, "namespace": namespace},
            "spec": {
                # On a full node the service's pods would have the load's place.
                "priorityClassName": "system-cluster-critical",
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                "volumes": volumes,
            },
        }


def _secret(name: str, values: dict[str, bytes]) -> Manifest:
    data = {key: base64.b64encode(value).decode() for key, value in values.items()}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}


def _certificate() -> dict[str, bytes]:
    """Names and content of the files, as cert-manager's secret has them."""
    with tempfile.TemporaryDirectory() as folder:
        files = Authority().issue(Path(folder))
        return {path.name: path.read_bytes() for path in (files.cert, files.key, files.ca)}
