"""What can be found wrong before anything is started: model folders, tokenizers, ports, labels of
nodes."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

from deployments.config import ServiceConfig
from deployments.demo_models import resolve_model
from deployments.ingress_replica import text_model
from deployments.nodes.selectors import fits
from deployments.telemetry.exporters import check_exporters
from deployments.tls.check import check_tls
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from specdec_core.models.files import local_folder, weight_files


def check_start(config: ServiceConfig, *, check_ports: bool = True) -> None:
    """Raise ModelNotSupportedError, InvalidRequestError or DemoModelError, saying what to do."""
    _check_template(config)
    check_tls(config.coordinator_tls)
    check_exporters()
    text = text_model(config)
    _check_model(config.model, config.revision, text.max_model_len)
    if config.draft:
        _check_model(config.draft, config.draft_revision, text.max_model_len)
        _check_pair(config)
    if check_ports:
        _check_free(config.host, config.port, "port")
        _check_free(config.host, config.grpc_port, "grpc_port")


def _check_template(config: ServiceConfig) -> None:
    if config.chat_template is not None and not config.chat_template.is_file():
        raise InvalidRequestError(f"chat_template {config.chat_template} is not a file")


def _check_model(name: str, revision: str | None, max_model_len: int) -> None:
    from transformers import AutoConfig

    from specdec_core.models.support import check_supported

    folder = local_folder(resolve_model(name), revision)
    weight_files(folder)
    try:
        model_config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelNotSupportedError(f"no usable config.json in {folder}: {error}") from error
    check_supported(model_config, max_model_len)


def _check_pair(config: ServiceConfig) -> None:
    from specdec_core.models.tokenizers import check_same_tokenizer, load_tokenizer

    assert config.draft is not None, "called only with a draft model"
    check_same_tokenizer(
        load_tokenizer(resolve_model(config.model), config.revision),
        load_tokenizer(resolve_model(config.draft), config.draft_revision),
    )


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
    """Of a Ray that is started for the service alone, whose only node has `labels`. Raises
    InvalidRequestError for a setting that asks for another node: it would be waited for in vain."""
    for name, selector in _asked_nodes(config):
        if not fits(selector, labels):
            raise InvalidRequestError(
                f"{name} asks for a node with {selector}, and the Ray that is started here has one "
                "node without it: leave the setting out, or start a Ray whose nodes have labels "
                "(`ray start --head --labels key=value`) and set RAY_ADDRESS=auto"
            )


def _asked_nodes(config: ServiceConfig) -> Iterator[tuple[str, Mapping[str, str]]]:
    for selector in config.target_node_labels:
        yield "target_node_labels", selector
    if config.num_draft_replicas:
        yield "draft_node_labels", config.draft_node_labels
    yield "ingress_node_labels", config.ingress_node_labels
    yield "coordinator_node_labels", config.coordinator_node_labels
