"""The settings of HTTP: web pages, host names, silent streams, and access to all keys' figures."""

from __future__ import annotations

import urllib.parse
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode

from deployments.config.api_keys import key_digest

ANY = "*"

Names = Annotated[tuple[str, ...], NoDecode]
"""Names that commas separate in the environment and in a flag."""


class WebSettings(BaseSettings):
    """Fields of ServiceConfig."""

    cors_origins: Names = ()
    """Origins of the web pages that may call the server, such as https://chat.example.com. `*`
    means all. Default: none."""
    allowed_hosts: Names = ()
    """Host names that a server on a loopback address answers besides localhost and IP addresses.
    `*` means all. Default: none."""
    stream_keep_alive_s: float = Field(default=15.0, gt=0)
    """Seconds of silence after which a stream of HTTP sends a comment line."""
    metrics_api_key: SecretStr | None = None
    """Key that reads the figures of all API keys, on /metrics and by PoolStatus, and nothing else.
    """
    metrics_api_key_sha256: str = ""
    """SHA-256 of that key. A deployed configuration has it in place of the key."""

    @field_validator("cors_origins", "allowed_hosts", mode="before")
    @classmethod
    def _split_names(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("metrics_api_key")
    @classmethod
    def _leave_out_empty(cls, key: SecretStr | None) -> SecretStr | None:
        """An empty environment variable sets no key."""
        text = "" if key is None else key.get_secret_value().strip()
        return SecretStr(text) if text else None

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != ANY and not _is_origin(origin):
                raise ValueError(
                    f"{origin!r} is not an origin: write scheme://host or scheme://host:port in "
                    "lower case, without a path, or '*' alone"
                )
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if host != ANY and any(sign in host for sign in "/:@ *"):
                raise ValueError(
                    f"{host!r} is not a host name: write it without scheme and port, or '*' alone"
                )
        return tuple(host.lower().removesuffix(".") for host in hosts)

    @property
    def metrics_key_digest(self) -> str:
        """SHA-256 of the key that reads all figures. Empty: there is no such key."""
        if self.metrics_api_key is None:
            return self.metrics_api_key_sha256
        return key_digest(self.metrics_api_key.get_secret_value())


def _is_origin(text: str) -> bool:
    parts = urllib.parse.urlsplit(text)
    return (
        bool(parts.netloc)
        and ANY not in text
        and text == f"{parts.scheme}://{parts.netloc}".lower()
    )
