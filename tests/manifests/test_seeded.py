"""One mistake at a time in what production renders to: the check that it is for says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.manifests.checks.ending import ending_problems
from tests.manifests.checks.network import network_problems
from tests.manifests.checks.objects import Manifest, Objects
from tests.manifests.checks.operator import operator_problems
from tests.manifests.checks.pods import package_version, pod_problems
from tests.manifests.checks.serving import serving_problems
from tests.manifests.spoiling import (
    ARGS,
    CLUSTER,
    GONE,
    GROUP,
    HEAD,
    SERVE,
    UPGRADE,
    WORKER,
    Path,
    spoiled,
)

Check = Callable[[Objects], Iterator[str]]

DOWNLOAD: Path = (*("Job", "specdec-models", "spec", "template", "spec", "containers", 0),)
REDIS: Path = ("StatefulSet", "specdec-redis", "spec", "template", "spec")
REDIS_BUDGET: Path = ("PodDisruptionBudget", "specdec-redis", "spec", "selector", "matchLabels")
SERVICE_PORTS: Path = ("Service", "specdec-entry", "spec", "ports")
PROXY = "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S"
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
SEEDED: dict[Check, list[tuple[Path, object, str]]] = {
    operator_problems: [
        (("RayService", "specdec", "metadata", "name"), 48 * "x", "48 characters"),
        (("RayService", "specdec", "metadata", "name"), "2spec", "DNS-1035"),
        ((*GROUP, "minReplicas"), 7, "not 7 <= 2 <= 6"),
        ((*GROUP, "scaleStrategy"), GONE, "scaleStrategy is left to the operator"),
        ((*GROUP, "resources"), {"CPU": "4"}, "resources both"),
        ((*GROUP, "rayStartParams", "num-cpus"), 4, "are strings"),
        ((*GROUP, "groupName"), "draft", "two groups"),
        ((*CLUSTER, "rayVersion"), "2.51.0", "token authentication"),
        ((*CLUSTER, "authOptions", "enableK8sTokenAuth"), True, "not allowed"),
        ((*CLUSTER, "networkPolicy"), {"mode": "DenyAll"}, "feature gate"),
        ((*GROUP, "template", "spec", "restartPolicy"), "Always", "restartPolicy Never"),
        ((*CLUSTER, "enableInTreeAutoscaling"), False, "incremental upgrade needs"),
        ((*UPGRADE, "stepSizePercent"), 60, "stepSizePercent 60 <= .* 50"),
        ((*UPGRADE, "gatewayClassName"), GONE, "gatewayClassName"),
        (("RayService", "specdec", "spec", "serveService"), {}, "is ignored"),
        (
            (*HEAD, "env", 0),
            {"name": "REDIS_PASSWORD", "value": "x"},
            "gcsFaultToleranceOptions alone",
        ),
        ((*CLUSTER, "headGroupSpec", "headService"), {"metadata": {"name": "mine"}}, "headService"),
    ],
    network_problems: [
        ((*WORKER, "ports", 0, "containerPort"), 8001, "group entry: ports are"),
        ((*HEAD, "ports", 3, "name"), "grpc", "group head: ports are"),
        ((*WORKER, "readinessProbe", "httpGet", "port"), 8001, "readinessProbe"),
        ((*SERVICE_PORTS, 1, "targetPort"), "grpc", "no port grpc"),
        ((*SERVICE_PORTS, 1, "appProtocol"), "http", "h2c"),
        (
            ("Service", "specdec-entry", "spec", "selector", "specdec.io/entry"),
            "yes",
            "Service specdec-entry selects no pod",
        ),
        (
            ("HTTPRoute", "specdec-http", "spec", "rules", 0, "backendRefs", 0, "port"),
            9000,
            "has no serve 9000",
        ),
        (
            ("GRPCRoute", "specdec-grpc", "spec", "rules", 0, "backendRefs", 0, "name"),
            "specdec-serve-svc",
            "specdec-serve-svc has no serve-grpc",
        ),
        (
            ("GRPCRoute", "specdec-grpc", "spec", "parentRefs", 0, "sectionName"),
            "h2",
            "no listener h2",
        ),
        (
            ("NetworkPolicy", "specdec-metrics", "spec", "ingress", 0, "ports", 0, "port"),
            "prometheus",
            "has no port prometheus",
        ),
        (
            ("NetworkPolicy", "specdec-within", "spec", "podSelector", "matchLabels"),
            {"app.kubernetes.io/name": "specdek"},
            "specdec-within selects no pod",
        ),
        (
            ("NetworkPolicy", "specdec-redis", "spec", "ingress", 0, "from", 0, "podSelector"),
            {"matchLabels": {"app.kubernetes.io/component": "master"}},
            "is no pod",
        ),
        (
            ("NetworkPolicy", "specdec-to-redis", "spec", "egress", 0, "ports", 0, "port"),
            6380,
            "has no port 6380",
        ),
        (
            ("NetworkPolicy", "specdec-to-redis", "spec", "policyTypes"),
            ["Ingress"],
            "egress is no policy type",
        ),
        (
            ("PodMonitor", "specdec-head", "spec", "podMetricsEndpoints", 0, "port"),
            "autoscaler",
            "has no port autoscaler",
        ),
        (
            ("PodMonitor", "specdec-nodes", "spec", "selector", "matchLabels"),
            {"ray.io/is-ray-node": "no"},
            "specdec-nodes selects no pod",
        ),
        (
            ("PodDisruptionBudget", "specdec-entry", "spec", "selector", "matchLabels"),
            {"app.kubernetes.io/component": "entries"},
            "specdec-entry selects no pod",
        ),
        (("PodDisruptionBudget", "specdec-entry", "spec", "minAvailable"), 2, "ever be evicted"),
        (("PodDisruptionBudget", "specdec-entry", "spec", "minAvailable"), "50%", "whole number"),
        (
            (*GROUP, "template", "spec", "topologySpreadConstraints", 0, "labelSelector"),
            {"matchLabels": {"app.kubernetes.io/component": "target-h100"}},
            "counts other pods",
        ),
    ],
    serving_problems: [
        ((*SERVE, "grpc_optionss"), {}, "no key grpc_optionss"),
        ((*SERVE, "http_options", "prot"), 1, "no key prot"),
        ((*SERVE, "applications", 0, "rout_prefix"), "/", "no key rout_prefix"),
        ((*SERVE, "http_options", "port"), "eight", "Serve refuses"),
        (
            (*SERVE, "applications", 0, "import_path"),
            "deployments.app:build",
            "deployments.app:build cannot be imported",
        ),
        (
            (*SERVE, "grpc_options", "grpc_servicer_functions", 0),
            "deployments.proxy.grpc_ending.add",
            "cannot be imported",
        ),
        ((*ARGS, "spec_tokenz"), 4, "refuses its settings"),
        ((*ARGS, "host"), "127.0.0.1", "answers nobody"),
        ((*ARGS, "torch_threads"), GONE, "torch_threads is left open"),
        ((*ARGS, "draft_node_labels"), {"specdec.io/nodes": "drafts"}, "no worker"),
        ((*ARGS, "target_num_cpus"), 9, "no pod of .*target-h100.* 9.0 CPUs"),
        ((*ARGS, "draft_num_gpus"), 2, "drafts: no pod"),
        ((*ARGS, "model"), "/weights/Qwen3-8B", "/weights/Qwen3-8B is on no volume"),
        ((*WORKER, "volumeMounts", 3), GONE, "group entry: /models/Qwen3-8B is on no"),
        ((*GROUP, "template", "spec", "initContainers"), [], "does not wait for"),
        (
            (*DOWNLOAD, "args"),
            ["hf download Qwen/Qwen3-8B --local-dir /models/Qwen3-8B\n"],
            "nobody writes /models/Qwen3-0.6B.complete",
        ),
        ((*ARGS, "coordinator_tls_ca"), "/etc/ca.crt", "ca.crt is on no volume"),
        ((*ARGS, "coordinator_tls_name"), "coordinator", "not coordinator"),
        (
            ("Certificate", "specdec-coordinator", "spec", "usages"),
            ["server auth"],
            "both servers and clients",
        ),
        (
            ("Certificate", "specdec-coordinator", "spec", "secretName"),
            "specdec-tls",
            "no certificate is written",
        ),
        ((*ARGS, "max_ingress_replicas_per_node"), GONE, "must be 1"),
        ((*ARGS, "ingress_replicas"), 1, "1 to 6 ingresses for 2 to 6 entry pods"),
    ],
    pod_problems: [
        ((*CLUSTER, "rayVersion"), "2.59.0", "rayVersion is 2.59.0"),
        ((*WORKER, "image"), "r/specdec-serve:0.0.9-cpu", "not of version"),
        ((*WORKER, "image"), "r/specdec-serve:latest", "has no version"),
        ((*HEAD, "image"), f"r/specdec-serve:{package_version()}-gpu", "does not fit"),
        ((*WORKER, "securityContext", "readOnlyRootFilesystem"), GONE, "not restricted"),
        ((*WORKER, "securityContext", "runAsUser"), 0, "not restricted"),
        ((*WORKER, "volumeMounts", 0, "name"), "temp", "volume temp that it does not"),
        ((*WORKER, "volumeMounts", 1), {"name": "tmp", "mountPath": "/x"}, "read-only"),
        ((*WORKER, "envFrom", 0, "configMapRef", "name"), "other", "no ConfigMap other"),
        (
            (*GROUP, "template", "spec", "priorityClassName"),
            "specdec-entry",
            "no priority class specdec-entry",
        ),
        (
            (*GROUP, "template", "spec", "automountServiceAccountToken"),
            True,
            "token of the API server",
        ),
        (
            ("PersistentVolumeClaim", "specdec-models", "metadata", "name"),
            "models",
            "no claim specdec-models",
        ),
        ((*WORKER, "readinessProbe", "timeoutSeconds"), 1, "waits 1 s for an answer"),
        ((*WORKER, "readinessProbe", "timeoutSeconds"), GONE, "waits 1 s for an answer"),
        ((*HEAD, "livenessProbe"), {"timeoutSeconds": 10}, "ends it after 30 s"),
        ((*HEAD, "livenessProbe"), {"failureThreshold": 60}, "livenessProbe of ray-head"),
        (
            (*WORKER, "startupProbe"),
            {"timeoutSeconds": 10, "periodSeconds": 1, "failureThreshold": 120},
            "ends it after 120 s",
        ),
        ((*CLUSTER, "autoscalerOptions", "securityContext"), {}, "autoscaler's container"),
        ((*REDIS, "priorityClassName"), GONE, "may displace it"),
        ((*REDIS, "priorityClassName"), "specdec-draft", "may displace it"),
        (
            (*REDIS, "containers", 0, "livenessProbe"),
            {"timeoutSeconds": 10, "failureThreshold": 60},
            "specdec-redis: a livenessProbe may end it",
        ),
        (
            (*REDIS, "containers", 0, "readinessProbe", "timeoutSeconds"),
            5,
            "StatefulSet specdec-redis: the readinessProbe of redis waits 5 s",
        ),
        ((*REDIS_BUDGET, "app.kubernetes.io/name"), "x", "no budget keeps a drain"),
    ],
    ending_problems: [
        ((*GROUP, "template", "spec", "terminationGracePeriodSeconds"), 79, "grace"),
        ((*GROUP, "template", "spec", "terminationGracePeriodSeconds"), GONE, "30 s"),
        ((*WORKER, "env", 0), {"name": DRAIN, "value": "64"}, "less than .* 65 s"),
        ((*ARGS, "graceful_shutdown_s"), 80, "group target-h100: 75 s to drain"),
        ((*WORKER, "env", 0), {"name": PROXY, "value": "75"}, "proxy stays for 75 s"),
        ((*WORKER, "env", 0), {"name": PROXY, "value": "9"}, "goes after 9 s, before"),
        ((*WORKER, "envFrom"), [], "group entry: RAY_GRACEFUL.* is left open"),
    ],
}


@pytest.mark.parametrize(
    ("check", "path", "value", "words"),
    [(check, *mistake) for check, mistakes in SEEDED.items() for mistake in mistakes],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_mistake_is_told(
    production: list[Manifest], check: Check, path: Path, value: object, words: str
) -> None:
    found = list(check(spoiled(production, path, value)))
    assert found
    with pytest.raises(AssertionError, match=words):
        assert not found, "\n".join(found)
