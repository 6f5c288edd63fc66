"""Checks before anything is deployed: model folders, tokenizers, ports, labels of nodes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deployments.cli.model_check import checking_models
from deployments.config.node_selectors import fits
from deployments.config.service import ServiceConfig
from deployments.config.tls_check import check_tls
from deployments.demo.models import resolve_model
from deployments.ingress_replica import text_model
from deployments.observability.exporters import check_exporters
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.files import local_folder, weight_files


@contextmanager
def checking_start(
    config: ServiceConfig, *, check_ports: bool = True
) -> Iterator[Callable[[], None]]:
    """Raises ModelNotSupportedError, InvalidRequestError or DemoModelError with the fix.

    Most checks finish before the body. The check of the models with transformers takes 2 s, in
    which Ray can start. The yielded function waits for that check.
    """
    _check_template(config)
    check_tls(config.tls.files)
    check_exporters()
    text = text_model(config)
    target = _folder(config.model, config.loading.revision)
    draft = _folder(config.draft, config.loading.draft_revision) if config.draft else None
    if check_ports:
        _check_free(config.host, config.port, "port")
        _check_free(config.host, config.grpc_port, "grpc_port")
    with checking_models(target, draft, text.max_model_len) as wait_for_models:
        yield wait_for_models


def _check_template(config: ServiceConfig) -> None:
    if config.loading.chat_template is not None and not config.loading.chat_template.is_file():
        raise InvalidRequestError(f"chat_template {config.loading.chat_template} is not a file")


def _folder(name: str, revision: str | None) -> Path:
    """Return the folder of the model, downloaded if necessary."""
    folder = local_folder(resolve_model(name), revision)
    weight_files(folder)
    return folder


def _check_free(host: str, port: int, name: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host if host != "localhost" else "127.0.0.1", port))
        except OSError as error:
            raise InvalidRequestError(
                f"{name}={port} on {host} cannot be used: {error.strerror}"
            ) from error


def check_own_node(config: ServiceConfig, labels: Mapping[str, str]) -> None:
    """Check the settings for a Ray of the service's own, whose only node has `labels`.

    Raises InvalidRequestError for a setting that asks for another node, because the service would
    wait for it forever.
    """
    for name, selector in _asked_nodes(config):
        if not fits(selector, labels):
            raise InvalidRequestError(
                f"{name} requires a node with {selector}, but the Ray that starts here "
                "has one node without that label. Leave the setting out, or start a Ray "
                "whose nodes have labels (`ray start --head --labels key=value`) and set "
                "RAY_ADDRESS=auto"
            )


def _asked_nodes(config: ServiceConfig) -> Iterator[tuple[str, Mapping[str, str]]]:
    for selector in config.nodes.target_node_labels:
        yield "target_node_labels", selector
    if config.num_draft_replicas:
        yield "draft_node_labels", config.nodes.draft_node_labels
    yield "ingress_node_labels", config.nodes.ingress_node_labels
    yield "coordinator_node_labels", config.nodes.coordinator_node_labels
