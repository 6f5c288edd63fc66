"""Who may use the server: API keys and, on a loopback server, local callers only."""

from __future__ import annotations

import hmac
import ipaddress
import urllib.parse
from collections.abc import Mapping

from deployments.api_keys import key_digest
from deployments.errors import ForbiddenError, UnauthorizedError

_SCHEME = "bearer "


class Access:
    """Checks a caller. `keys` empty: no key is asked for."""

    def __init__(self, keys: Mapping[str, str], host: str) -> None:
        """`keys` gives the name of every key's digest."""
        self._keys = dict(keys)
        self._is_local_only = is_loopback(host)

    def check_key(self, authorization: str | None) -> str:
        """`Authorization: Bearer KEY`, compared in constant time; the key's name, empty where none
        is needed. Raises UnauthorizedError."""
        if not self._keys:
            return ""
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise UnauthorizedError("an API key is needed: Authorization: Bearer KEY")
        given = key_digest(authorization[len(_SCHEME) :].strip())
        names = [n for digest, n in self._keys.items() if hmac.compare_digest(given, digest)]
        if not names:
            raise UnauthorizedError("the API key is wrong")
        return names[0]

    def check_peer(self, peer: str) -> None:
        """Serve's gRPC proxy listens on every interface; a loopback server refuses the others."""
        if self._is_local_only and not is_loopback(peer_host(peer)):
            raise ForbiddenError("this server answers local callers only: start it with --host")


def peer_host(peer: str) -> str:
    """The address in gRPC's `ipv4:127.0.0.1:44042`, `ipv6:%5B::1%5D:44042` or `unix:...`."""
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    if kind == "unix":
        return "localhost"
    return rest.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
