"""All that `specdec serve` checks before it deploys anything, waited for."""

from __future__ import annotations

from pathlib import Path

from deployments.cli.model_check import checking_models
from deployments.cli.preflight import checking_start
from deployments.config.service import ServiceConfig


def check_start(config: ServiceConfig, *, check_ports: bool = True) -> None:
    with checking_start(config, check_ports=check_ports) as wait_for_models:
        wait_for_models()


def check_models_apart(target: Path, draft: Path | None, max_model_len: int) -> None:
    with checking_models(target, draft, max_model_len) as wait_for_models:
        wait_for_models()
