"""Certificates that a test makes: an authority, and what it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deployments.wire.tls_files import TlsFiles

NAME = "specdec-coordinator"
PURPOSES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Authority:
    """Signs certificates and writes them where a service would find them."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("a test's authority")
        builder = _builder(self._name, self._name, self._key, lasts=timedelta(days=1))
        only_signs = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = builder.add_extension(only_signs, critical=True).sign(
            self._key, hashes.SHA256()
        )

    def issue(
        self,
        folder: Path,
        *,
        name: str = NAME,
        lasts: timedelta = timedelta(days=1),
        purposes: tuple[x509.ObjectIdentifier, ...] = PURPOSES,
    ) -> TlsFiles:
        """Write certificate, key and authority into `folder`, over what is there."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name("a replica"), self._name, key, lasts)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        folder.mkdir(exist_ok=True)
        files = TlsFiles(
            cert=folder / "tls.crt", key=folder / "tls.key", ca=folder / "ca.crt", name=NAME
        )
        files.cert.write_bytes(_pem(certificate))
        files.ca.write_bytes(_pem(self.certificate))
        files.key.write_bytes(key_pem(key, serialization.NoEncryption()))
        return files


def key_pem(
    key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption
) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, encryption)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + lasts)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
