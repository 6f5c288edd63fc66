"""Proxies are guarded wherever the service runs: started by `specdec serve` or on Kubernetes."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest

from deployments.cli.serve import GUARDED_EDGE, prepare_environment
from deployments.config.service import ServiceConfig

_ENVIRONMENT = Path(__file__).parents[3] / "k8s" / "base" / "environment.env"
"""That every container has it, tests/manifests sees."""


def test_specdec_serve_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    prepare_environment()
    assert os.environ.items() >= GUARDED_EDGE.items()


def test_every_pod_of_the_cluster_has_them() -> None:
    lines = _ENVIRONMENT.read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert given.items() >= GUARDED_EDGE.items()


def test_the_hook_is_where_they_say() -> None:
    module, _, name = GUARDED_EDGE["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_proxies_take_what_an_ingress_takes() -> None:
    """A message beyond `max_body_bytes` shall be refused by the ingress, in its words."""
    for name in ("RAY_SERVE_GRPC_MAX_MESSAGE_SIZE", "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH"):
        assert int(GUARDED_EDGE[name]) >= 4 * ServiceConfig.of().limits.max_body_bytes
