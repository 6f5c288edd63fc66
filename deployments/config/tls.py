"""The settings of TLS between the processes of a service."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from deployments.wire.tls_files import TlsFiles


class TlsSettings(BaseSettings):
    """Fields of ServiceConfig."""

    coordinator_tls_cert: Path | None = None
    """PEM certificate of the coordinator, the replicas and the ingresses, with its chain to the
    authority.

    The path is the same on every node.
    """
    coordinator_tls_key: Path | None = None
    """Private key of the certificate, not encrypted."""
    coordinator_tls_ca: Path | None = None
    """Certificate of the authority. Peers without a certificate signed by it are refused."""
    coordinator_tls_name: str = Field(default="specdec-coordinator", min_length=1)
    """A DNS name in the certificate. No certificate has the addresses of pods."""

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        paths = {
            name: getattr(self, name)
            for name in ("coordinator_tls_cert", "coordinator_tls_key", "coordinator_tls_ca")
        }
        missing = [name for name, path in paths.items() if path is None]
        if missing and len(missing) < len(paths):
            raise ValueError(f"TLS needs certificate, key and authority: {missing[0]} is missing")
        for name, path in paths.items():
            if path is not None and not path.is_absolute():
                raise ValueError(f"{name}={path} must be absolute: every process reads it")
        return self

    @property
    def coordinator_tls(self) -> TlsFiles | None:
        """TLS files of the coordinator's streams. None: plain text."""
        cert, key, ca = self.coordinator_tls_cert, self.coordinator_tls_key, self.coordinator_tls_ca
        if cert is None or key is None or ca is None:
            return None
        return TlsFiles(cert=cert, key=key, ca=ca, name=self.coordinator_tls_name)
