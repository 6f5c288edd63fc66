"""What is done to the service, one step after the other, and what has to hold meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from deployments.config.scaling import Bounds
from tests.cluster.deployed import CLIENT_POD, CLIENTS, FOREIGN, NAMESPACE, SERVICE, Deployed
from tests.cluster.kubectl import Kubectl, KubectlError, Manifest, is_ready
from tests.cluster.kubectl import apply as apply_objects
from tests.cluster.kubectl import kubectl as ask
from tests.cluster.load import ADDRESS, Load, Verdict
from tests.cluster.rehearsal import SERVING, TARGETS, Rehearsal, StepError, check, wait_for

ANSWERS_AGAIN_S = 2.0
"""After the sudden end of an entry another one answers."""
COORDINATOR_S = 8.0
"""After the sudden end of its node a coordinator's streams go on."""
OPERATOR = "app.kubernetes.io/component=kuberay-operator"
_LOOK_INSIDE_S = 5.0
"""Between looks that start a process in a pod."""
_BEFORE_S = 6.0
"""That streams run before something is done to the service."""
_OTHER_SETTINGS: dict[str, Any] = {"kv_cache_tokens": 12288, "target_num_cpus": 5}
"""Of a redeploy. A pod has eight logical CPUs: the new target has room beside the old one, and
when both are new the second needs a pod of its own."""


@dataclass(frozen=True, slots=True)
class Step:
    """Returns figures; raises StepError or KubectlError."""

    name: str
    run: Callable[[Rehearsal], dict[str, Any]]


def _check_load(verdict: Verdict, *, may_fail: bool = False) -> None:
    check(verdict.num_answers > 0, "nothing was answered")
    check(verdict.wrong == 0, f"{verdict.wrong} of {verdict.num_answers} answers are not offline's")
    if not may_fail:
        check(not verdict.errors, f"requests failed {verdict.when_failed}: {dict(verdict.errors)}")


@contextmanager
def under_load(rehearsal: Rehearsal) -> Iterator[Load]:
    """Streams that run while something is done to the service; none of them may notice it."""
    wait_for("ready before", rehearsal.all_ready, rehearsal.ready_s)
    with rehearsal.load() as load:
        time.sleep(_BEFORE_S)
        yield load
    _check_load(load.verdict)


def apply(rehearsal: Rehearsal) -> dict[str, Any]:
    kubectl, deployed = rehearsal.kubectl, rehearsal.deployed
    apply_objects(deployed.namespaces())
    try:  # left there by a run with --keep
        deployed.take_key(kubectl.get("secrets", "specdec-api-keys"))
    except KubectlError:
        apply_objects(deployed.secrets())
    apply_objects((rehearsal.former or deployed).namespaced)
    apply_objects(deployed.clients(rehearsal.questions))
    return {"objects": len(deployed.objects), "not_known_to_this_cluster": deployed.left_out}


def ready(rehearsal: Rehearsal) -> dict[str, Any]:
    return {"seconds": round(wait_for("ready", rehearsal.all_ready, rehearsal.ready_s), 1)}


def answers_equal_offline(rehearsal: Rehearsal) -> dict[str, Any]:
    """Every question, greedy and sampled, against `specdec generate` in a pod of its own."""
    client = Kubectl(CLIENTS)
    wait_for(
        "the client's pod", lambda: is_ready(client.get("pods", CLIENT_POD)), rehearsal.ready_s
    )
    command = "specdec generate --raw-prompt --algorithm autoregressive --max-num-seqs 8"
    command += " --input /client/questions.jsonl --output /tmp/offline.jsonl > /tmp/log 2>&1"
    client.execute(
        CLIENT_POD, "sh", "-c", f"{command} || {{ tail /tmp/log; false; }}", timeout_s=600
    )
    lines = client.execute(CLIENT_POD, "cat", "/tmp/offline.jsonl").splitlines()
    rehearsal.expected = [json.loads(line)["output_token_ids"] for line in lines]
    with rehearsal.load() as load:
        enough = 2 * len(rehearsal.questions)
        wait_for("answers", lambda: load.num_answers >= enough, rehearsal.ready_s)
    _check_load(load.verdict)
    return load.verdict.figures


def apply_twice(rehearsal: Rehearsal) -> dict[str, Any]:
    """What an operator does at every upgrade: refused where somebody else owns a field."""
    before = rehearsal.kubectl.get("rayservices", SERVICE)["metadata"]["generation"]
    apply_objects(rehearsal.deployed.namespaced)
    after = rehearsal.kubectl.get("rayservices", SERVICE)["metadata"]["generation"]
    check(before == after, f"generation {before} became {after}, and nothing was changed")
    return {"generation": after}


def coordinators_apart(rehearsal: Rehearsal) -> dict[str, Any]:
    what = "coordinators on both entries"
    seconds = wait_for(what, lambda: _are_apart(rehearsal), rehearsal.recovered_s, _LOOK_INSIDE_S)
    return {"seconds": round(seconds, 1), "on": sorted(rehearsal.coordinators().values())}


def _are_apart(rehearsal: Rehearsal) -> bool:
    places = list(rehearsal.coordinators().values())
    return len(places) >= 2 and len(set(places)) == len(places)


def evicted(component: str, number: int = 0) -> Callable[[Rehearsal], dict[str, Any]]:
    """As a drain does it: nobody may notice."""

    def run(rehearsal: Rehearsal) -> dict[str, Any]:
        with under_load(rehearsal) as load:
            pod = rehearsal.ready_pod(component, number)["metadata"]["name"]
            rehearsal.kubectl.evict(pod)
            times = _recover(rehearsal)
        return {"pod": pod} | times | load.verdict.figures

    return run


def killed(component: str, number: int = 0) -> Callable[[Rehearsal], dict[str, Any]]:
    """Every process of the pod but the first one gets SIGKILL; that one ends of it."""

    def run(rehearsal: Rehearsal) -> dict[str, Any]:
        wait_for("ready before", rehearsal.all_ready, rehearsal.ready_s)
        with rehearsal.load(workers=2) as plain, rehearsal.load(workers=4, resume=True) as resuming:
            time.sleep(_BEFORE_S)
            pod = rehearsal.ready_pod(component, number)
            name, places = pod["metadata"]["name"], rehearsal.coordinators()
            has_coordinator = pod["status"]["podIP"] in places.values()
            at = _kill_all(rehearsal.kubectl, name)
            times = _recover(rehearsal)
        is_entry = component == "entry"
        _check_load(resuming.verdict)
        _check_load(plain.verdict, may_fail=is_entry)
        last_s = max((t - at for t in plain.verdict.failed_at), default=0.0)
        errors = dict(plain.verdict.errors)
        check(last_s <= ANSWERS_AGAIN_S, f"{last_s:.1f} s after the pod's end: {errors}")
        if has_coordinator:
            gap = resuming.verdict.longest_gap_s
            check(gap <= COORDINATOR_S, f"streams of the coordinator waited {gap:.1f} s")
        return {
            "pod": name,
            "had_coordinator": has_coordinator,
            "last_failed_s": round(last_s, 2),
            **times,
            "plain": plain.verdict.figures,
            "resuming": resuming.verdict.figures,
        }

    return run


def _kill_all(kubectl: Kubectl, pod: str) -> float:
    """When, in Unix seconds."""
    try:
        script = "echo $EPOCHREALTIME; kill -9 -1"
        return float(kubectl.execute(pod, "bash", "-c", script, timeout_s=20))
    except KubectlError as error:  # the shell is gone as well
        if "137" not in str(error) and "no answer" not in str(error):
            raise
        return time.time()


def _recover(rehearsal: Rehearsal) -> dict[str, float]:
    """Seconds until two entries are ready that stay, and until all is as before."""
    began = time.monotonic()
    time.sleep(3.0)
    wait_for("two entries ready", rehearsal.entries_ready, rehearsal.recovered_s)
    recovered_s = time.monotonic() - began
    wait_for("the service as before", rehearsal.all_ready, rehearsal.ready_s)
    as_before_s = time.monotonic() - began
    return {"recovered_s": round(recovered_s, 1), "as_before_s": round(as_before_s, 1)}


def redis_deleted(rehearsal: Rehearsal) -> dict[str, Any]:
    """Its budget refuses a drain; who deletes it knows."""
    wait_for("ready before", rehearsal.all_ready, rehearsal.ready_s)
    try:
        rehearsal.kubectl.evict("specdec-redis-0")
    except KubectlError as error:
        check("disruption budget" in str(error), f"eviction of Redis: {error}")
    else:
        raise StepError("Redis was evicted against its budget")
    with under_load(rehearsal) as load:
        before = rehearsal.head_life()
        rehearsal.kubectl.run("delete", "pod", "specdec-redis-0", "--wait=true")
        # Ray's head does not outlive its Redis, and takes some seconds to notice.
        wait_for("a new head", lambda: rehearsal.head_life() != before, rehearsal.recovered_s)
        times = _recover(rehearsal)
    return times | load.verdict.figures


def operator_killed(rehearsal: Rehearsal) -> dict[str, Any]:
    """It has no part in serving: nobody notices."""
    found = operators()
    check(bool(found), f"no operator with the label {OPERATOR}")
    operator = found[0]["metadata"]
    with under_load(rehearsal) as load:
        there = Kubectl(operator["namespace"])
        there.run("delete", "pod", operator["name"], "--grace-period=0", "--force")
        seconds = wait_for(
            "an operator", lambda: any(map(is_ready, operators())), rehearsal.ready_s
        )
        time.sleep(_BEFORE_S)
    return {"recovered_s": round(seconds, 1)} | load.verdict.figures


def operators() -> list[Manifest]:
    """Pods."""
    words = ("get", "pods", "--all-namespaces", "--selector", OPERATOR, "--output", "json")
    return list(json.loads(ask(*words))["items"])


def settings_redeployed(rehearsal: Rehearsal) -> dict[str, Any]:
    """Other settings in the running cluster."""
    nums: list[int] = []

    def is_over() -> bool:
        nums.append(rehearsal.num_pods(SERVING))
        return _is_running_anew(rehearsal, names)

    with under_load(rehearsal) as load:
        names, before = set(rehearsal.coordinators()), rehearsal.num_pods(SERVING)
        apply_objects([rehearsal.deployed.with_settings(**_OTHER_SETTINGS)])
        what = "the application with other settings"
        seconds = wait_for(what, is_over, rehearsal.ready_s, _LOOK_INSIDE_S)
    return {"seconds": round(seconds, 1), "extra_pods": max(nums) - before} | load.verdict.figures


def _is_running_anew(rehearsal: Rehearsal, names: set[str]) -> bool:
    return rehearsal.all_ready() and not names & set(rehearsal.coordinators())


def new_environment(rehearsal: Rehearsal) -> dict[str, Any]:
    """A second cluster, and clients move."""
    service = rehearsal.deployed.with_environment("SPECDEC_REHEARSAL", "1")
    return _replaced(rehearsal, [service])


def rolled_back(rehearsal: Rehearsal) -> dict[str, Any]:
    """The former revision is applied again."""
    return _replaced(rehearsal, [rehearsal.deployed.service])


def upgraded(rehearsal: Rehearsal) -> dict[str, Any]:
    """The manifests and the image of this release are applied where the former one runs."""
    return _to_release(rehearsal, rehearsal.deployed)


def downgraded(rehearsal: Rehearsal) -> dict[str, Any]:
    """The manifests and the image of the former release are applied again."""
    assert rehearsal.former is not None, "this step is part of an upgrade's rehearsal"
    return _to_release(rehearsal, rehearsal.former)


def _to_release(rehearsal: Rehearsal, release: Deployed) -> dict[str, Any]:
    # A job's template cannot be changed, and the job may have ended a moment ago.
    rehearsal.kubectl.run("delete", "job", "specdec-models", "--ignore-not-found")
    figures = _replaced(rehearsal, release.namespaced)
    head, *others = rehearsal.kubectl.pods("head")
    image = head["spec"]["containers"][0]["image"]
    check(not others and image == release.image, f"the head runs {image}, not {release.image}")
    return {"image": image} | figures


def _replaced(rehearsal: Rehearsal, objects: Sequence[Manifest]) -> dict[str, Any]:
    with under_load(rehearsal) as load:
        before = rehearsal.running_version()
        apply_objects(objects)
        moved = wait_for(
            "another cluster", lambda: _is_another(rehearsal, before), rehearsal.ready_s
        )
        wait_for(
            "the old cluster's end",
            lambda: len(rehearsal.kubectl.pods("head")) == 1,
            rehearsal.ready_s,
        )
        wait_for("both entries ready", rehearsal.entries_ready, rehearsal.recovered_s)
    return {"moved_s": round(moved, 1)} | load.verdict.figures


def _is_another(rehearsal: Rehearsal, before: str | None) -> bool:
    return rehearsal.running_version() not in (None, before)


def scaled(rehearsal: Rehearsal) -> dict[str, Any]:
    """One target more in each cell, and back: Ray asks for the pods and gives them up."""

    def num_targets() -> int:
        return rehearsal.num_pods(TARGETS)

    def is_as_before() -> bool:
        return num_targets() == 2 and rehearsal.num_pods(["entry"]) == 2

    def are_up() -> bool:
        return rehearsal.num_ready(*TARGETS) == 4 and rehearsal.is_settled()

    def targets_between(least: int, most: int) -> None:
        bounds = Bounds(least, most)
        apply_objects([rehearsal.deployed.with_settings(bounds, **_OTHER_SETTINGS)])

    if not _has_settings(rehearsal):  # the step before was left out
        settings_redeployed(rehearsal)
    wait_for("no pod of the redeploy is left", is_as_before, rehearsal.ready_s)
    with under_load(rehearsal) as load:
        targets_between(2, 2)
        up = wait_for("four targets' pods", lambda: num_targets() >= 4, rehearsal.ready_s)
        up += wait_for("four targets", are_up, rehearsal.ready_s)
        time.sleep(_BEFORE_S)
        targets_between(1, 1)
        down = wait_for("two targets and two entries again", is_as_before, rehearsal.ready_s)
    return {"up_s": round(up, 1), "down_s": round(down, 1)} | load.verdict.figures


def _has_settings(rehearsal: Rehearsal) -> bool:
    service = rehearsal.kubectl.get("rayservices", SERVICE)
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    args = config["applications"][0]["args"]
    return all(args.get(name) == value for name, value in _OTHER_SETTINGS.items())


def foreign_refused(rehearsal: Rehearsal) -> dict[str, Any]:
    """A namespace without the label gets no connection, where the network enforces policies."""
    host, _, port = ADDRESS.partition(":")
    connect = f"import socket; socket.create_connection(({host!r}, {port}), 5)"
    foreign = Kubectl(FOREIGN)
    wait_for(
        "the foreign pod", lambda: is_ready(foreign.get("pods", CLIENT_POD)), rehearsal.ready_s
    )
    try:
        foreign.execute(CLIENT_POD, "python3", "-c", connect)
    except KubectlError:
        return {"refused": True}
    return {"refused": False, "note": "the network of this cluster enforces no NetworkPolicy"}


def uninstalled(rehearsal: Rehearsal) -> dict[str, Any]:
    """In the order of k8s/README.md."""
    began, kubectl = time.monotonic(), rehearsal.kubectl
    kubectl.run("delete", "rayservice", SERVICE, "--wait=true", timeout_s=rehearsal.ready_s)
    wait_for(
        "no pod of Ray", lambda: not kubectl.get("pods", selector="ray.io/cluster")["items"], 300
    )
    named = {
        one["metadata"]["name"]
        for one in rehearsal.deployed.objects
        if one["kind"] == "PriorityClass"
    }
    for namespace in (NAMESPACE, CLIENTS, FOREIGN):
        kubectl.run("delete", "namespace", namespace, "--wait=true", timeout_s=rehearsal.ready_s)
    kubectl.run("delete", "priorityclass", *sorted(named))
    left = json.loads(kubectl.run("get", "rayservice,raycluster,rayjob", "-A", "--output", "json"))
    ours = [
        one["metadata"]["name"]
        for one in left["items"]
        if one["metadata"]["namespace"] == NAMESPACE
    ]
    check(not ours, f"left: {ours}")
    return {"seconds": round(time.monotonic() - began, 1)}


STEPS = (
    Step("apply", apply),
    Step("ready", ready),
    Step("answers equal offline's", answers_equal_offline),
    Step("every object applied twice", apply_twice),
    Step("a foreign namespace", foreign_refused),
    Step("coordinators on different entries", coordinators_apart),
    *(Step(f"{one} evicted", evicted(one)) for one in SERVING),
    Step("the other entry evicted", evicted("entry")),
    Step("Redis deleted", redis_deleted),
    *(Step(f"{one} ended suddenly", killed(one)) for one in SERVING),
    Step("the other entry ended suddenly", killed("entry", 1)),
    Step("the operator ended", operator_killed),
    Step("coordinators on different entries again", coordinators_apart),
    Step("settings redeployed", settings_redeployed),
    Step("scaled up and down", scaled),
    Step("a new environment", new_environment),
    Step("rolled back", rolled_back),
    Step("uninstall", uninstalled),
)

UPGRADE = (
    *STEPS[:3],
    Step("upgraded", upgraded),
    Step("back to the former release", downgraded),
    STEPS[-1],
)
"""With `--former-manifests`. The first steps start the former release."""
