"""Declares TLS between the processes of a service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from deployments.config.flags import flag, setting

if TYPE_CHECKING:
    from deployments.wire.tls_files import TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Files of the coordinator's streams. Their paths are the same on every node."""

    PANEL: ClassVar[str] = "Address"

    coordinator_tls_cert: Path | None = flag(
        None, "PEM certificate for TLS between the processes of the service.", resolve_path=True
    )
    """Used by coordinator, replicas and ingresses, with its chain to the authority."""
    coordinator_tls_key: Path | None = flag(
        None, "Private key of --coordinator-tls-cert.", resolve_path=True
    )
    """Not encrypted."""
    coordinator_tls_ca: Path | None = flag(
        None,
        "PEM certificate of the authority that signed the certificates of all processes.",
        resolve_path=True,
    )
    """Peers without a certificate signed by it are refused."""
    coordinator_tls_name: str = setting("specdec-coordinator", min_length=1)
    """A DNS name in the certificate. No certificate has the addresses of pods."""

    def __post_init__(self) -> None:
        paths = {
            name: getattr(self, name)
            for name in ("coordinator_tls_cert", "coordinator_tls_key", "coordinator_tls_ca")
        }
        missing = [name for name, path in paths.items() if path is None]
        if missing and len(missing) < len(paths):
            raise ValueError(f"TLS needs certificate, key and authority: {missing[0]} is missing")
        for name, path in paths.items():
            if path is not None and not path.is_absolute():
                raise ValueError(
                    f"{name}={path} must be an absolute path, because every process reads it"
                )

    @property
    def files(self) -> TlsFiles | None:
        """TLS files of the coordinator's streams. None: plain text."""
        from deployments.wire.tls_files import TlsFiles

        cert, key, ca = self.coordinator_tls_cert, self.coordinator_tls_key, self.coordinator_tls_ca
        if cert is None or key is None or ca is None:
            return None
        return TlsFiles(cert=cert, key=key, ca=ca, name=self.coordinator_tls_name)
