"""Declares HTTP: web pages, host names, silent streams, and access to the figures of all keys."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import ClassVar

from deployments.config.api_keys import key_digest
from deployments.config.flags import comma_names, flag, setting

ANY = "*"


def _check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if origin != ANY and not _is_origin(origin):
            raise ValueError(
                f"{origin!r} is not an origin: write scheme://host or scheme://host:port in "
                "lower case, without a path, or '*' alone"
            )
    return origins


def _check_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        if host != ANY and any(sign in host for sign in "/:@ *"):
            raise ValueError(
                f"{host!r} is not a host name: write it without scheme and port, or '*' alone"
            )
    return tuple(host.lower().removesuffix(".") for host in hosts)


def _is_origin(text: str) -> bool:
    parts = urllib.parse.urlsplit(text)
    return (
        bool(parts.netloc)
        and ANY not in text
        and text == f"{parts.scheme}://{parts.netloc}".lower()
    )


def _without_spaces(key: str | None) -> str | None:
    """Return the key, or None for an empty environment variable."""
    return (key or "").strip() or None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """Web pages, host names and streams."""

    PANEL: ClassVar[str] = "Address"

    cors_origins: tuple[str, ...] = flag(
        (),
        "Origins of web pages that may call the server, such as https://chat.example.com, "
        "separated by commas. * means all. Default: none.",
        parse=comma_names,
        check=_check_origins,
        metavar="ORIGINS",
    )
    allowed_hosts: tuple[str, ...] = flag(
        (),
        "Host names that a server on a loopback address answers besides localhost and IP "
        "addresses, separated by commas. * means all. Default: none.",
        parse=comma_names,
        check=_check_hosts,
        metavar="NAMES",
    )
    stream_keep_alive_s: float = setting(15.0, gt=0)
    """Seconds of silence after which a stream of HTTP sends a comment line."""
    metrics_api_key: str | None = flag(
        None,
        "Key that reads the figures of all API keys on /metrics, and nothing else.",
        check=_without_spaces,
        is_secret=True,
        metavar="KEY",
    )
    metrics_api_key_sha256: str = setting("")
    """SHA-256 of that key. A deployed configuration has it in place of the key."""

    @property
    def metrics_key_digest(self) -> str:
        """SHA-256 of the key that reads all figures. Empty: there is no such key."""
        if self.metrics_api_key is None:
            return self.metrics_api_key_sha256
        return key_digest(self.metrics_api_key)
