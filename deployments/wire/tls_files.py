"""Certificate, key and authority of the coordinator's streams, as files on every node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files. Both sides show the certificate, and accept what the authority has signed.

    Paths are sent to other processes, contents never. Every process reads the files where it runs.
    """

    cert: Path
    key: Path
    ca: Path
    name: str
    """A DNS name of the certificate. It is checked instead of the address, which is a pod's."""

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that read the files again at every handshake.

        A renewed certificate serves the next connection. If files are missing or do not match
        during their replacement, gRPC continues with those read last. Raises OSError if they cannot
        be read now.
        """
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._configuration, require_client_authentication=True
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials from the files as they are now. Raises OSError."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.ca.read_bytes(),
            private_key=self.key.read_bytes(),
            certificate_chain=self.cert.read_bytes(),
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], self.ca.read_bytes())
