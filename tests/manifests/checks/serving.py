"""The text in serveConfigV2: Serve takes it, it starts ours, and the pods have what it needs."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeDeploySchema

from deployments.config.node_selectors import fits
from deployments.config.service import ServiceConfig
from deployments.ingress.auth import is_loopback
from tests.manifests.checks.objects import Manifest, Objects, Pod


def serving_problems(objects: Objects) -> Iterator[str]:
    config = objects.serve_config
    yield from _schema_problems(config)
    yield from _import_problems(config)
    try:
        settings = ServiceConfig.of(**objects.settings)
    except ValidationError as error:
        yield f"the service refuses its settings: {error}"
        return
    if is_loopback(settings.host) or is_loopback(config["http_options"]["host"]):
        yield "a service that listens on loopback answers nobody in a cluster"
    if settings.torch_threads is None:
        yield "torch_threads is left open: a pod would take all cores of its node for its own"
    yield from _placing_problems(objects, settings)
    yield from _entry_problems(objects, settings)
    yield from _file_problems(objects, settings)


def _schema_problems(config: Manifest) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            ServeDeploySchema.model_validate(config)
        except (ValidationError, ValueError) as error:
            yield f"Serve refuses the text: {error}"
    yield from (f"Serve knows no key {key}" for key in unknown_keys(config, ServeDeploySchema))


def unknown_keys(content: Any, model: type[BaseModel]) -> Iterator[str]:
    """Serve's schema ignores keys that it does not know."""
    for key, value in content.items():
        field = model.model_fields.get(key)
        if field is None:
            yield key
            continue
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        for item in value if isinstance(value, list) else [value]:
            for kind in inner[:1]:
                yield from unknown_keys(item, kind)


def _import_problems(config: Manifest) -> Iterator[str]:
    paths = [application["import_path"] for application in config["applications"]]
    paths += config["grpc_options"]["grpc_servicer_functions"]
    for path in paths:
        module, _, name = path.replace(":", ".").rpartition(".")
        try:
            getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            yield f"{path} cannot be imported: {error}"


def _needs(settings: ServiceConfig) -> Iterator[tuple[str, dict[str, str], float, float]]:
    """What is placed: its kind, its node labels, CPUs and GPUs."""
    s = settings
    for cell in range(s.scaling.cells):
        labels = s.nodes.target_labels(cell)
        yield f"targets of cell {cell}", labels, s.target_num_cpus, s.scaling.target_num_gpus or 0
    if s.num_draft_replicas:
        yield "drafts", s.nodes.draft_node_labels, s.draft_num_cpus, s.scaling.draft_num_gpus or 0
    yield "ingresses", s.nodes.ingress_node_labels, s.ingress_num_cpus, 0
    yield "coordinators", s.nodes.coordinator_node_labels, 0, 0


def _placing_problems(objects: Objects, settings: ServiceConfig) -> Iterator[str]:
    groups = objects.cluster["workerGroupSpecs"]
    for kind, labels, cpus, gpus in _needs(settings):
        fitting = [g for g in groups if fits(labels, g.get("labels", {}))]
        if not fitting:
            yield f"{kind}: no worker group has the labels {labels}"
        elif not any(_holds(group, cpus, gpus) for group in fitting):
            names = [group["groupName"] for group in fitting]
            yield f"{kind}: no pod of {names} has {cpus} CPUs, {gpus} GPUs"


def _entry_problems(objects: Objects, settings: ServiceConfig) -> Iterator[str]:
    """Serve packs ingresses onto one pod: other entries would never be ready."""
    groups = objects.cluster["workerGroupSpecs"]
    entries = [
        group
        for group in groups
        if group["template"]["metadata"]["labels"].get("specdec.io/entry") == "true"
        and group["minReplicas"] > 1
    ]
    if entries and settings.nodes.max_ingress_replicas_per_node != 1:
        yield "max_ingress_replicas_per_node must be 1: all ingresses may run on one entry pod"
    fewest, most = (sum(group[key] for group in entries) for key in ("minReplicas", "maxReplicas"))
    bounds = settings.scaling.ingress_bounds
    if entries and not fewest <= bounds.least <= bounds.most <= most:
        yield f"{bounds.least} to {bounds.most} ingresses for {fewest} to {most} entry pods"


def _holds(group: Manifest, cpus: float, gpus: float) -> bool:
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    has_gpus = float(limits.get("nvidia.com/gpu", 0))
    return float(group["rayStartParams"]["num-cpus"]) >= cpus and has_gpus >= gpus


def _file_problems(objects: Objects, settings: ServiceConfig) -> Iterator[str]:
    """What settings name by a path is mounted where it is read."""
    tls = settings.tls.files
    for path in (tls.cert, tls.key, tls.ca) if tls else ():
        for pod in objects.ray_pods():
            if _mount_of(pod, str(path)) is None:
                yield f"{pod.owner}: {path} is on no volume"
    for model in (settings.model, settings.draft):
        if model and model.startswith("/"):
            yield from _model_problems(objects, settings, model)
    yield from _certificate_problems(objects, settings)


def _model_problems(objects: Objects, settings: ServiceConfig, model: str) -> Iterator[str]:
    """Replicas load it, ingresses read its tokenizer; both fail for good where it is not there
    yet, so their pods wait until the download has named it whole."""
    groups = objects.cluster["workerGroupSpecs"]
    whole = f"{model}.complete"
    for group, pod in zip(groups, objects.ray_pods()[1:], strict=True):
        has_gpu = "nvidia.com/gpu" in pod.containers[0]["resources"]["limits"]
        if not has_gpu and not fits(settings.nodes.ingress_node_labels, group.get("labels", {})):
            continue
        if _mount_of(pod, model) is None:
            yield f"{pod.owner}: {model} is on no volume"
        waits = [one["args"][0] for one in pod.spec.get("initContainers", ())]
        if not any(f"[ -e {whole} ]" in command for command in waits):
            yield f"{pod.owner}: it does not wait for {whole}"
    for job in objects.of("Job"):
        (script,) = job["spec"]["template"]["spec"]["containers"][0]["args"]
        if f"touch {whole}\n" not in script:
            yield f"nobody writes {whole}"


def _mount_of(pod: Pod, path: str) -> Manifest | None:
    for mount in pod.containers[0].get("volumeMounts", ()):
        if PurePosixPath(path).is_relative_to(mount["mountPath"]):
            return dict(mount)
    return None


def _certificate_problems(objects: Objects, settings: ServiceConfig) -> Iterator[str]:
    """The secret that is mounted is one that a certificate of that name is written to."""
    tls = settings.tls.files
    if tls is None:
        return
    mount = _mount_of(objects.ray_pods()[0], str(tls.cert))
    volumes = {one["name"]: one for one in objects.ray_pods()[0].spec["volumes"]}
    secret = volumes[mount["name"]]["secret"]["secretName"] if mount else None
    named = [
        one["spec"] for one in objects.of("Certificate") if one["spec"]["secretName"] == secret
    ]
    if not named:
        yield f"no certificate is written to the secret {secret}"
    for spec in named:
        if tls.name not in spec["dnsNames"]:
            yield f"the certificate has {spec['dnsNames']}, not {tls.name}"
        if not {"server auth", "client auth"} <= set(spec["usages"]):
            yield "the certificate is not for both servers and clients"
