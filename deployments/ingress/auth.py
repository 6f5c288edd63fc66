"""Access to the server, by API keys and, on a loopback server, for local callers only."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import urllib.parse
from collections.abc import Collection, Mapping

from deployments.config.api_keys import key_digest
from deployments.config.web import ANY
from deployments.errors import ForbiddenError, UnauthorizedError

_SCHEME = "bearer "


class Access:
    """Checks a caller. Empty `keys`: no key is needed."""

    def __init__(
        self,
        keys: Mapping[str, str],
        host: str,
        *,
        allowed_hosts: Collection[str] = (),
        metrics_key_digest: str = "",
    ) -> None:
        """`keys` maps the digest of each key to its name. `host` is the address that HTTP listens
        on.

        `allowed_hosts` are names that a loopback server answers besides its own. The key with
        `metrics_key_digest` reads the figures of all keys.
        """
        self._keys = dict(keys)
        self._is_local_only = is_loopback(host)
        self._allowed_hosts = frozenset(allowed_hosts)
        self._metrics_key_digest = metrics_key_digest

    def check_key(self, authorization: str | None) -> str:
        """Check `Authorization: Bearer KEY` in constant time. Return the key's name, empty if no
        key is needed. Raises UnauthorizedError."""
        return self._name_of_key(authorization) if self._keys else ""

    def _name_of_key(self, authorization: str | None) -> str:
        given = _digest_in(authorization)
        if given is None:
            raise UnauthorizedError("an API key is needed: Authorization: Bearer KEY")
        names = [n for digest, n in self._keys.items() if hmac.compare_digest(given, digest)]
        if not names:
            raise UnauthorizedError("the API key is wrong")
        return names[0]

    def is_monitor(self, authorization: str | None) -> bool:
        """Return whether the caller shows the key that reads the figures of all API keys."""
        given = _digest_in(authorization)
        return given is not None and hmac.compare_digest(given, self._metrics_key_digest)

    def visible_names(self, authorization: str | None) -> Collection[str] | None:
        """Return the names of the API keys whose figures the caller may read, or None for all.

        Raises UnauthorizedError for a wrong key.
        """
        if not self._keys or self.is_monitor(authorization):
            return None
        return () if authorization is None else (self.check_key(authorization),)

    def check_host(self, host: str) -> None:
        """Raises ForbiddenError for a `Host` that a loopback server does not answer. A web page may
        bind its own name to 127.0.0.1, but no address, and then read what a server answers."""
        has_port = ":" in host and not host.endswith("]")
        name = (host.rpartition(":")[0] if has_port else host).strip("[]").lower().removesuffix(".")
        if not self._is_local_only or not name or _is_own(name):
            return
        if name not in self._allowed_hosts and ANY not in self._allowed_hosts:
            raise ForbiddenError(
                f"the host name {name[:200]!r} is not allowed, because this server accepts local "
                "callers only: add the name to allowed_hosts (--allowed-hosts)"
            )

    def check_peer(self, peer: str) -> None:
        """Refuse a caller from another machine on a loopback server.

        Serve's gRPC proxy listens on every interface.
        """
        if self._is_local_only and not is_loopback(peer_host(peer)):
            raise ForbiddenError("this server answers local callers only: start it with --host")


def peer_host(peer: str) -> str:
    """Return the address in gRPC's `ipv4:127.0.0.1:44042`, `ipv6:%5B::1%5D:44042` or `unix:...`."""
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    if kind == "unix":
        return "localhost"
    return rest.rpartition(":")[0].strip("[]")


def _digest_in(authorization: str | None) -> str | None:
    """Return the digest of the key that a caller shows, if any. An empty key counts as none."""
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        return None
    key = authorization[len(_SCHEME) :].strip()
    return key_digest(key) if key else None


def _is_own(name: str) -> bool:
    """Return whether a host name is this machine's, or an address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
