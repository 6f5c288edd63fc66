"""Convert the flags of `specdec serve` to the service's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from yaml import YAMLError

from deployments.config.service import ServiceConfig, load_service_config
from deployments.validation_errors import describe_errors
from specdec_core.errors import InvalidRequestError

_NOT_SETTINGS = ("config", "print_config")
"""Flags that name the source or the destination of settings."""


def service_config(file: Path | None, flags: Mapping[str, Any]) -> ServiceConfig:
    """Return the configuration. Flags override the environment, which overrides the file. Raises
    InvalidRequestError naming every mistake."""
    given = {k: v for k, v in flags.items() if k not in _NOT_SETTINGS and v not in (None, "")}
    if "speculative_config" in given:
        given["speculative_config"] = _parse_json(given["speculative_config"])
    try:
        return load_service_config(file, given)
    except ValidationError as error:
        raise InvalidRequestError(describe_errors(error)) from error
    except (ValueError, YAMLError) as error:
        raise InvalidRequestError(f"{file}: {error}" if file else str(error)) from error


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"--speculative-config is not JSON: {error}") from error
