"""The flags of `specdec serve`, and the service's configuration from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.cli.command import optional_section
from deployments.config.flags import INPUT_FILE, flag
from deployments.config.service import ServiceConfig, load_service_config
from specdec_core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Flags of the command: those of the settings, and some that stand for settings."""

    config: Path | None = flag(None, "YAML file of settings. Flags override it.", **INPUT_FILE)
    print_config: bool = flag(False, "Print the serveConfigV2 text and stop.")
    api_key: str | None = flag(
        None, "Key that clients must send. Commas separate several.", panel="Address"
    )
    speculative_config: str | None = flag(
        None,
        'Speculation settings as in vLLM: {"method": ..., "model": ..., '
        '"num_speculative_tokens": ...}.',
        panel="Speculation",
        metavar="JSON",
    )
    enable_auto_tool_choice: bool | None = flag(
        None,
        "Accepted for compatibility with vLLM. Always on.",
        "--enable-auto-tool-choice",
        hidden=True,
    )
    settings: Mapping[str, Any] = optional_section(ServiceConfig)

    def service_config(self) -> ServiceConfig:
        own = ("api_key", "speculative_config", "enable_auto_tool_choice")
        return service_config(
            self.config, {**self.settings, **{name: getattr(self, name) for name in own}}
        )


def service_config(file: Path | None, flags: Mapping[str, Any]) -> ServiceConfig:
    """Return the configuration. Flags override the environment, which overrides the file. Flags
    that are None or empty are not given. Raises InvalidRequestError naming every mistake."""
    from pydantic import ValidationError
    from yaml import YAMLError

    from deployments.validation_errors import describe_errors

    given = {k: v for k, v in flags.items() if v not in (None, "")}
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
