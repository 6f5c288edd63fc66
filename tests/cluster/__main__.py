"""`make test-cluster`: production's topology on a real cluster, and everything that happens to it.

For whichever cluster `KUBECONFIG` names, with KubeRay 1.7 and the image of docker/cpu.Dockerfile.
It uses three namespaces of its own and removes them at its end. Two cores and 12 GiB are enough.

    make test-cluster
    python -m tests.cluster --only evicted --keep --patience 2

An upgrade from another release and back. FILE is k8s/rendered/rehearsal.yaml of that release:

    python -m tests.cluster --former-manifests FILE --former-image specdec-serve:0.1.0-cpu-former
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.cluster.deployed import CLIENTS, NAMESPACE, Deployed
from tests.cluster.kubectl import Kubectl, KubectlError, Manifest, is_ready
from tests.cluster.questions import questions
from tests.cluster.rehearsal import Rehearsal, StepError
from tests.cluster.report import Result, write
from tests.cluster.steps import STEPS, UPGRADE, Step, operators

_NOT_RUN = 3
"""Exit status where no cluster is at hand: neither passed nor failed."""
_ALWAYS = ("apply", "ready", "answers equal offline's")


def main() -> int:
    options = _options()
    if (missing := _missing()) is not None:
        print(f"SKIPPED: test-cluster was not run: {missing}")
        return _NOT_RUN
    all_steps = UPGRADE if options.former_manifests else STEPS
    steps = [one for one in all_steps if one.name in _ALWAYS or _is_chosen(one, options.only)]
    if options.keep:
        steps = [one for one in steps if one.name != "uninstall"]
    rehearsal = Rehearsal(Deployed(), Kubectl(NAMESPACE), questions(), options.patience)
    if options.former_manifests:
        rehearsal.former = Deployed(options.former_manifests, options.former_image)
    about, results = _about(rehearsal), []
    for number, step in enumerate(steps, 1):
        print(f"[{number}/{len(steps)}] {step.name} ...", flush=True)
        result = run_step(step, rehearsal)
        results.append(result)
        write(results, [one.name for one in steps], about, options.output)
        word = "passed" if result.passed else f"FAILED: {result.problem}"
        print(
            f"    {word} in {result.seconds:.0f} s {json.dumps(dict(result.figures))}", flush=True
        )
        for event in result.events:
            print(f"      {event}", flush=True)
        if not result.passed and step.name in _ALWAYS:
            break
    print(f"{options.output} and {options.output.with_suffix('.md')}")
    is_whole = len(results) == len(steps)
    return 0 if is_whole and all(result.passed for result in results) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of steps")
    parser.add_argument("--keep", action="store_true", help="leave the service there")
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        help="factor of the time limits for getting ready and recovering; 2 on two busy cores",
    )
    parser.add_argument(
        "--former-manifests",
        type=Path,
        help="rendered overlay of another release: start it, upgrade it under load, and go back",
    )
    parser.add_argument("--former-image", help="its image, in place of the one in its manifests")
    default = Path("build/test-cluster.json")
    parser.add_argument("--output", type=Path, default=default, help="JSON; a page goes beside it")
    return parser.parse_args()


def _is_chosen(step: Step, only: list[str]) -> bool:
    return not only or any(part in step.name for part in only)


def _missing() -> str | None:
    """What is not at hand."""
    if shutil.which("kubectl") is None:
        return "kubectl is not installed"
    command = ["kubectl", "get", "crd", "rayservices.ray.io", "--request-timeout=10s"]
    asked = subprocess.run(command, capture_output=True, text=True)
    if asked.returncode != 0:
        return f"no cluster with KubeRay answers: {asked.stderr.strip().splitlines()[-1:]}"
    return None


def _about(rehearsal: Rehearsal) -> dict[str, Any]:
    version = json.loads(rehearsal.kubectl.run("version", "--output", "json"))
    nodes = rehearsal.kubectl.get("nodes")["items"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "kubernetes": version["serverVersion"]["gitVersion"],
        "nodes": len(nodes),
        "cpus": [node["status"]["capacity"]["cpu"] for node in nodes],
        "machine": platform.machine(),
        "image": rehearsal.deployed.image,
        **({"former image": rehearsal.former.image} if rehearsal.former else {}),
        "factor of the time limits": rehearsal.patience,
        "operator's priority class": ", ".join(map(_priority, operators())) or "no operator found",
        "kinds that this cluster does not know": ", ".join(rehearsal.deployed.left_out) or "none",
    }


def _priority(operator: Manifest) -> str:
    none = "none: on a full node it gives way to the service's pods, and nothing is upgraded"
    return str(operator["spec"].get("priorityClassName", none))


def run_step(step: Step, rehearsal: Rehearsal) -> Result:
    """Run one step. If it fails, the result keeps what its loads saw."""
    began = time.monotonic()
    figures: dict[str, Any] = {}
    problem, events = "", []
    rehearsal.loads.clear()
    try:
        figures = step.run(rehearsal)
    except (StepError, KubectlError) as error:
        problem, events = str(error), _events()
    except Exception as error:  # the other steps are worth their while
        problem, events = "".join(traceback.format_exception(error)), _events()
    if problem:
        figures = rehearsal.load_figures()
    return Result(step.name, not problem, time.monotonic() - began, figures, problem, events)


def _events() -> list[str]:
    """Of the pods that are not ready, ours and the clients'."""
    found = []
    for namespace in (NAMESPACE, CLIENTS):
        kubectl = Kubectl(namespace)
        try:
            pods = kubectl.get("pods")["items"]
            for pod in pods:
                if not is_ready(pod) and pod["status"].get("phase") != "Succeeded":
                    found += kubectl.events_of(pod["metadata"]["name"])
        except KubectlError as error:
            found.append(str(error))
    return found


if __name__ == "__main__":
    sys.exit(main())
