"""Tests TLS files before anything listens, and reports an error in one line."""

from __future__ import annotations

import contextlib
import ssl

from deployments.wire.tls_files import TlsFiles
from specdec_core.errors import InvalidRequestError

_FLIGHTS = 4
"""Maximum turns of both sides in a handshake."""


def check_tls(files: TlsFiles | None) -> None:
    """Shake hands with oneself. Raises InvalidRequestError that names the wrong setting.

    None: plain text, nothing to check.
    """
    if files is None:
        return
    client = _context(files, ssl.PROTOCOL_TLS_CLIENT)
    server = _context(files, ssl.PROTOCOL_TLS_SERVER)
    try:
        _shake_hands(client, server, files.name)
    except ssl.SSLCertVerificationError as error:
        raise InvalidRequestError(
            f"coordinator_tls_cert: {files.cert} is not valid for {files.name!r} with the "
            f"authority {files.ca}: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        raise InvalidRequestError(f"coordinator_tls_cert: {files.cert}: {error.reason}") from error


def _context(files: TlsFiles, side: int) -> ssl.SSLContext:
    """Return a context that shows a certificate and asks for one."""
    for name in ("cert", "key", "ca"):
        path = getattr(files, name)
        try:
            path.read_bytes()
        except OSError as error:
            raise InvalidRequestError(f"coordinator_tls_{name}: {path}: {error.strerror}") from None
    context = ssl.SSLContext(side)
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cafile=files.ca)
    except ssl.SSLError as error:
        raise InvalidRequestError(
            f"coordinator_tls_ca: {files.ca} is not a PEM certificate: {error.reason}"
        ) from error
    try:
        # Without this OpenSSL asks the terminal for the passphrase of an encrypted key.
        context.load_cert_chain(files.cert, files.key, password="")
    except ssl.SSLError as error:
        raise InvalidRequestError(
            f"coordinator_tls_key: {files.key} is not the unencrypted PEM key of the certificate "
            f"{files.cert}: {error.reason}"
        ) from error
    return context


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_FLIGHTS):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
