"""Who is reached at which port: selectors find pods, and names of ports are theirs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.manifests.checks.objects import Manifest, Objects, Pod, name_of


def network_problems(objects: Objects) -> Iterator[str]:
    yield from _service_problems(objects)
    yield from _route_problems(objects)
    yield from _policy_problems(objects)
    yield from _monitor_problems(objects)
    yield from _budget_problems(objects)
    yield from _pod_problems(objects)
    yield from _serving_problems(objects)


def _selected(objects: Objects, selector: Manifest) -> list[Pod]:
    return [pod for pod in objects.pods() if pod.is_selected(selector)]


def _service_problems(objects: Objects) -> Iterator[str]:
    for service in objects.of("Service"):
        pods = _selected(objects, {"matchLabels": service["spec"]["selector"]})
        if not pods:
            yield f"{name_of(service)} selects no pod"
        for port in service["spec"]["ports"]:
            yield from _port_problems(name_of(service), port["targetPort"], pods)
            if port["port"] not in {pod.ports.get(port["name"]) for pod in pods}:
                yield f"{name_of(service)}: port {port['port']} is not the pods' {port['name']}"
            if port["name"] == "serve-grpc" and port.get("appProtocol") != "kubernetes.io/h2c":
                yield f"{name_of(service)}: gRPC in plain text is appProtocol kubernetes.io/h2c"


def _route_problems(objects: Objects) -> Iterator[str]:
    gateways = {one["metadata"]["name"]: one for one in objects.of("Gateway")}
    for route in objects.of("HTTPRoute", "GRPCRoute"):
        for parent in route["spec"]["parentRefs"]:
            gateway = gateways.get(parent["name"])
            listeners = gateway["spec"]["listeners"] if gateway else []
            if parent["sectionName"] not in {one["name"] for one in listeners}:
                yield f"{name_of(route)}: no listener {parent['sectionName']} of {parent['name']}"
        port_name = "serve" if route["kind"] == "HTTPRoute" else "serve-grpc"
        for backend in (one for rule in route["spec"]["rules"] for one in rule["backendRefs"]):
            service = objects.named("Service", backend["name"])
            ports = service["spec"]["ports"] if service else []
            if backend["port"] not in {p["port"] for p in ports if p["name"] == port_name}:
                yield f"{name_of(route)}: {backend['name']} has no {port_name} {backend['port']}"


def _policy_problems(objects: Objects) -> Iterator[str]:
    for policy in objects.of("NetworkPolicy"):
        spec, name = policy["spec"], name_of(policy)
        pods = _selected(objects, spec["podSelector"])
        if not pods:
            yield f"{name} selects no pod"
        for direction in ("ingress", "egress"):
            if direction in spec and direction.capitalize() not in spec["policyTypes"]:
                yield f"{name}: {direction} is no policy type of it"
        for rule in spec.get("ingress", ()):
            yield from _peer_problems(objects, name, rule.get("from", ()))
            for port in rule.get("ports", ()):
                yield from _port_problems(name, port["port"], pods)
        for rule in spec.get("egress", ()):
            yield from _peer_problems(objects, name, rule.get("to", ()))
            yield from _egress_port_problems(objects, name, rule)


def _egress_port_problems(objects: Objects, name: str, rule: Manifest) -> Iterator[str]:
    """Names of ports are those of the pods that are called, if they are ours."""
    peers = [peer for peer in rule.get("to", ()) if "namespaceSelector" not in peer]
    called = [pod for peer in peers for pod in _selected(objects, peer["podSelector"])]
    for port in rule.get("ports", ()):
        if called or isinstance(port["port"], str):
            yield from _port_problems(name, port["port"], called)


def _peer_problems(objects: Objects, name: str, peers: list[Manifest]) -> Iterator[str]:
    for peer in peers:
        if "namespaceSelector" not in peer and not _selected(objects, peer["podSelector"]):
            yield f"{name}: {peer} is no pod"


def _port_problems(name: str, port: str | int, pods: list[Pod]) -> Iterator[str]:
    """Every pod has it, by name or by number."""
    for pod in pods:
        if port not in pod.ports and port not in pod.ports.values():
            yield f"{name}: {pod.owner} has no port {port}"


def _monitor_problems(objects: Objects) -> Iterator[str]:
    for monitor in objects.of("PodMonitor"):
        pods = _selected(objects, monitor["spec"]["selector"])
        if not pods:
            yield f"{name_of(monitor)} selects no pod"
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            yield from _port_problems(name_of(monitor), endpoint["port"], pods)


def _budget_problems(objects: Objects) -> Iterator[str]:
    """No controller with a scale counts Ray's pods: only whole numbers in minAvailable work."""
    for budget in objects.of("PodDisruptionBudget"):
        spec, name = budget["spec"], name_of(budget)
        pods = _selected(objects, spec["selector"])
        if not pods:
            yield f"{name} selects no pod"
        is_store = any(not pod.is_ray for pod in pods)  # Redis: who ends it has to mean it
        needed = spec.get("minAvailable")
        if not isinstance(needed, int) or "maxUnavailable" in spec:
            yield f"{name}: only a whole number in minAvailable counts pods of a RayCluster"
        elif not is_store and needed >= sum(pod.fewest for pod in pods):
            yield f"{name}: no pod could ever be evicted"


def _pod_problems(objects: Objects) -> Iterator[str]:
    for pod in objects.pods():
        for constraint in pod.spec.get("topologySpreadConstraints", ()):
            if not pod.is_selected(constraint["labelSelector"]):
                yield f"{pod.owner}: its spread counts other pods"
        for container in pod.containers:
            for kind in ("readinessProbe", "livenessProbe", "startupProbe"):
                probe = container.get(kind, {})
                how = probe.get("httpGet") or probe.get("tcpSocket")
                if how:
                    yield from _port_problems(f"{kind}", how["port"], [pod])


def _serving_problems(objects: Objects) -> Iterator[str]:
    """KubeRay's Serve service has the head's ports named serve or serve-..., nothing else."""
    config = objects.serve_config
    expected = {
        "serve": config["http_options"]["port"],
        "serve-grpc": config["grpc_options"]["port"],
        "metrics": 8080,
    }
    for pod in objects.ray_pods():
        if wrong := expected.items() - pod.ports.items():
            yield f"{pod.owner}: ports are {pod.ports}, not {dict(wrong)}"
