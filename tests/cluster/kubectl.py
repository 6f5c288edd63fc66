"""kubectl, as the steps use it: whichever cluster `KUBECONFIG` names."""

from __future__ import annotations

import atexit
import json
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import yaml

Manifest = dict[str, Any]
_PATHS = {
    "nodes": "api/v1/nodes",
    "pods": "api/v1/namespaces/{}/pods",
    "secrets": "api/v1/namespaces/{}/secrets",
    "poddisruptionbudgets": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "rayservices": "apis/ray.io/v1/namespaces/{}/rayservices",
}
_GET_S = 30.0


class KubectlError(RuntimeError):
    """kubectl refused; the message is its own."""


def kubectl(*words: str, given: str | None = None, timeout_s: float = 120) -> str:
    """Raises KubectlError."""
    command = ["kubectl", *words]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise KubectlError(f"{' '.join(words)}: no answer in {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise KubectlError(f"{' '.join(words)[:200]}: {done.stderr.strip()[-2000:]}")
    return done.stdout


@cache
def _api() -> str:
    """Address of a `kubectl proxy` that ends with this process. `kubectl get` takes a fifth of a
    second of CPU, and steps look every second."""
    process = subprocess.Popen(["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    assert process.stdout is not None, "it was opened with one"
    return process.stdout.readline().split()[-1]


def apply(objects: Sequence[Manifest]) -> None:
    """Server-side, as k8s/README.md says; each object names its namespace."""
    kubectl("apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(objects))


class Kubectl:
    """Commands in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def run(self, *words: str, given: str | None = None, timeout_s: float = 120) -> str:
        """Raises KubectlError."""
        return kubectl("--namespace", self.namespace, *words, given=given, timeout_s=timeout_s)

    def get(self, kind: str, name: str = "", selector: str = "") -> Any:
        """An object, or all that the selector names. Raises KubectlError."""
        path = f"{_PATHS[kind].format(self.namespace)}/{name}".rstrip("/")
        try:
            url = f"http://{_api()}/{path}?labelSelector={quote(selector)}"
            with urlopen(url, timeout=_GET_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            message = error.read(2000).decode(errors="replace")
            raise KubectlError(f"{kind} {name}: {message}") from error
        except OSError as error:
            raise KubectlError(f"{kind} {name}: {error}") from error

    def pods(self, component: str) -> list[Manifest]:
        """Of specdec that are not about to go, the oldest first."""
        selector = f"app.kubernetes.io/name=specdec,app.kubernetes.io/component={component}"
        pods = self.get("pods", selector=selector)["items"]
        live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return sorted(live, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def evict(self, pod: str) -> None:
        """As a drain does: disruption budgets may refuse it."""
        meta = {"name": pod, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        self.run("create", "--raw", path, "-f", "-", given=json.dumps(eviction))

    def execute(self, pod: str, *words: str, container: str = "", timeout_s: float = 120) -> str:
        chosen = ["--container", container] if container else []
        return self.run("exec", pod, *chosen, "--", *words, timeout_s=timeout_s)

    def events_of(self, pod: str) -> list[str]:
        """The last ones, in words."""
        selector = f"involvedObject.name={pod}"
        found = json.loads(
            self.run("get", "events", "--field-selector", selector, "--output", "json")
        )["items"]
        return [f"{pod}: {one['reason']}: {one['message'][:200]}" for one in found[-6:]]


def is_ready(pod: Manifest) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


def serves_kinds() -> set[str]:
    """`kind` of everything that the cluster takes."""
    output = kubectl("api-resources", "--no-headers")
    return {line.split()[-1] for line in output.splitlines() if line.strip()}
