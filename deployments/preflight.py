"""What can be found wrong before anything is started: model folders, tokenizers, ports."""

from __future__ import annotations

import socket

from deployments.config import ServiceConfig
from deployments.demo_models import resolve_model
from deployments.ingress_replica import text_model
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
