"""The deployed service as the steps see it, the loads of a step, and waits with a limit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.deployed import SERVICE, Deployed
from tests.cluster.kubectl import Kubectl, KubectlError, Manifest, is_ready
from tests.cluster.load import Load

READY_S = 600.0
RECOVERED_S = 90.0
TARGETS = ("target-h100", "target-a100")
SERVING = ("entry", *TARGETS, "draft", "head")
"""Components of our pods."""
_LOOK_S = 1.0
_COORDINATORS = Path(__file__).parent / "in_pod" / "coordinators.py"


class StepError(AssertionError):
    """What a step found wrong."""


@dataclass
class Rehearsal:
    """What the steps share."""

    deployed: Deployed
    kubectl: Kubectl
    questions: Sequence[Manifest]
    patience: float = 1.0
    """Factor of the time limits: more than 1 on a slow machine."""
    former: Deployed | None = None
    """The release that is upgraded, in a rehearsal of an upgrade."""
    expected: list[list[int]] = field(default_factory=list)
    """Token ids of each question, decoded offline."""
    loads: list[Load] = field(default_factory=list)
    """The loads of this step."""

    @property
    def ready_s(self) -> float:
        """Maximum time until the whole service is ready."""
        return READY_S * self.patience

    @property
    def recovered_s(self) -> float:
        """Maximum time from the end of any one pod until both entries are ready."""
        return RECOVERED_S * self.patience

    def load(self, *, workers: int = 4, resume: bool = False) -> Load:
        self.loads.append(Load(self.deployed.key, self.expected, workers, resume))
        return self.loads[-1]

    def load_figures(self) -> dict[str, Any]:
        """Figures of the loads of this step, in the form that a step returns them."""
        if len(self.loads) == 1:
            return self.loads[0].verdict.figures
        return {
            f"{load.name} load {number}": load.verdict.figures
            for number, load in enumerate(self.loads, 1)
        }

    def entries_ready(self) -> bool:
        """Two of them, which their budget lets go one after the other. The autoscaler may have
        started a third, which has no ingress and goes again."""
        budget = self.kubectl.get("poddisruptionbudgets", "specdec-entry")
        return self.num_ready("entry") >= 2 and budget["status"]["disruptionsAllowed"] >= 1

    def all_ready(self) -> bool:
        """A head, two entries, a target in each cell, and the operator says so."""
        if not self.entries_ready():
            return False
        has_targets = all(self.num_ready(group) for group in ("head", *TARGETS))
        return has_targets and self.running_version() is not None

    def num_ready(self, *components: str) -> int:
        """Pods. A target's is ready while a replica runs on it: a node without has no proxy."""
        return sum(is_ready(pod) for one in components for pod in self.kubectl.pods(one))

    def ready_pod(self, component: str, number: int) -> Manifest:
        """Waits for it: drafts come with the load."""
        wait_for(component, lambda: self.num_ready(component) > number, self.ready_s)
        return [pod for pod in self.kubectl.pods(component) if is_ready(pod)][number]

    def running_version(self) -> str | None:
        """Name of the cluster whose application runs; None while none does."""
        active = self._active()
        if _application(active).get("status") != "RUNNING":
            return None
        return str(active["rayClusterName"])

    def is_settled(self) -> bool:
        """No replica is about to come or to go."""
        deployments = _application(self._active()).get("serveDeploymentStatuses", {}).values()
        healthy = [one["status"] == "HEALTHY" for one in deployments]
        return all(healthy) and bool(healthy) and self.all_ready()

    def _active(self) -> dict[str, Any]:
        status = self.kubectl.get("rayservices", SERVICE).get("status", {})
        return dict(status.get("activeServiceStatus", {}))

    def coordinators(self) -> dict[str, str]:
        """Name -> address of its pod."""
        (head,) = self.kubectl.pods("head")
        script = _COORDINATORS.read_text()
        output = self.kubectl.execute(
            head["metadata"]["name"], "python3", "-c", script, container="ray-head"
        )
        return dict(json.loads(output.splitlines()[-1]))

    def head_life(self) -> tuple[str, int]:
        """Which pod, and how often its containers have begun anew."""
        (head,) = self.kubectl.pods("head")
        containers = head["status"]["containerStatuses"]
        return str(head["metadata"]["name"]), sum(one["restartCount"] for one in containers)

    def num_pods(self, components: Sequence[str]) -> int:
        return sum(len(self.kubectl.pods(component)) for component in components)


def _application(active: dict[str, Any]) -> dict[str, Any]:
    return dict(active.get("applicationStatuses", {}).get("specdec", {}))


def wait_for(
    what: str, holds: Callable[[], bool], timeout_s: float, look_s: float = _LOOK_S
) -> float:
    """Seconds until `holds`. Raises StepError."""
    began = time.monotonic()
    while not _holds(holds):
        if time.monotonic() - began > timeout_s:
            raise StepError(f"{what}: not within {timeout_s:.0f} s; --patience sets the limits")
        time.sleep(look_s)
    return time.monotonic() - began


def _holds(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except (KubectlError, KeyError, ValueError):
        return False


def check(is_right: bool, problem: str) -> None:
    if not is_right:
        raise StepError(problem)
