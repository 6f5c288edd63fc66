"""Certificate, key and authority of the coordinator's streams: files that lie on every node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files. Both sides show the certificate, and take what the authority has signed.

    Paths travel, contents never do: every process reads them where it runs.
    """

    cert: Path
    key: Path
    ca: Path
    name: str
    """A DNS name of the certificate. It is checked instead of the address, which is a pod's."""

    def server_credentials(self) -> grpc.ServerCredentials:
        """Read again at every handshake: a renewed certificate serves the next connection. Files in
        the middle of their replacement, gone or not fitting together, change nothing: gRPC goes on
        with what was read last. Raises OSError when they cannot be read now."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._configuration, require_client_authentication=True
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """As the files are now. Raises OSError."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.ca.read_bytes(),
            private_key=self.key.read_bytes(),
            certificate_chain=self.cert.read_bytes(),
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], self.ca.read_bytes())
