"""TLS settings that cannot work are refused before anything listens, naming what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.x509.oid import ExtendedKeyUsageOID
from pydantic import ValidationError

from deployments.app import coordinator_spec, serve_config_text
from deployments.config.service import ServiceConfig
from deployments.config.tls_check import check_tls
from deployments.wire.tls_files import TlsFiles
from specdec_core.errors import InvalidRequestError
from tests.deployments.checked import check_start
from tests.deployments.tls.authority import NAME, Authority, key_pem


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return Authority().issue(tmp_path / "tls")


def settings(files: TlsFiles) -> dict[str, Any]:
    return {
        "coordinator_tls_cert": str(files.cert),
        "coordinator_tls_key": str(files.key),
        "coordinator_tls_ca": str(files.ca),
    }


def test_files_that_fit_are_accepted_and_reach_the_coordinator(files: TlsFiles) -> None:
    check_tls(files)
    config = ServiceConfig.of(**settings(files))
    assert coordinator_spec(config).tls == files
    assert coordinator_spec(ServiceConfig.of()).tls is None
    sent = ServiceConfig.of(**config.deployable())
    assert sent.tls.files == files


def test_only_paths_travel(files: TlsFiles) -> None:
    text = serve_config_text(ServiceConfig.of(**settings(files)))
    assert str(files.key) in text
    for file in (files.cert, files.key, files.ca):
        assert file.read_text().splitlines()[1] not in text


@pytest.mark.parametrize("missing", ["cert", "key", "ca"])
def test_half_of_tls_is_refused(files: TlsFiles, missing: str) -> None:
    given = settings(files)
    del given[f"coordinator_tls_{missing}"]
    with pytest.raises(ValidationError, match=f"coordinator_tls_{missing} is missing"):
        ServiceConfig.of(**given)


def test_a_path_that_each_process_would_read_elsewhere_is_refused(files: TlsFiles) -> None:
    given = settings(files) | {"coordinator_tls_key": "tls/tls.key"}
    with pytest.raises(ValidationError, match=r"coordinator_tls_key=.* must be an absolute path"):
        ServiceConfig.of(**given)


@pytest.mark.parametrize("missing", ["cert", "key", "ca"])
def test_a_start_without_a_file_is_refused_by_its_setting_and_path(
    files: TlsFiles, missing: str
) -> None:
    path = getattr(files, missing)
    path.unlink()
    with pytest.raises(
        InvalidRequestError, match=f"coordinator_tls_{missing}: {path}: No such file"
    ):
        check_start(ServiceConfig.of(**settings(files)))


def write_foreign_key(files: TlsFiles, folder: Path) -> None:
    files.key.write_bytes(Authority().issue(folder).key.read_bytes())


def write_encrypted_key(files: TlsFiles, folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    files.key.write_bytes(key_pem(key, BestAvailableEncryption(b"a passphrase")))


def write_garbage(files: TlsFiles, folder: Path) -> None:
    files.ca.write_text("no certificate")


def write_foreign_authority(files: TlsFiles, folder: Path) -> None:
    files.ca.write_bytes(Authority().issue(folder).ca.read_bytes())


def write_expired(files: TlsFiles, folder: Path) -> None:
    Authority().issue(files.cert.parent, lasts=-timedelta(days=1))


def write_other_name(files: TlsFiles, folder: Path) -> None:
    Authority().issue(files.cert.parent, name="gateway.example.com")


def write_for_servers_only(files: TlsFiles, folder: Path) -> None:
    Authority().issue(files.cert.parent, purposes=(ExtendedKeyUsageOID.SERVER_AUTH,))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (write_foreign_key, "coordinator_tls_key: .* is not the unencrypted PEM key"),
        (write_encrypted_key, "coordinator_tls_key: .* is not the unencrypted PEM key"),
        (write_garbage, "coordinator_tls_ca: .* is not a PEM certificate"),
        (write_foreign_authority, "coordinator_tls_cert: .* certificate signature failure"),
        (write_expired, "coordinator_tls_cert: .* certificate has expired"),
        (write_other_name, "coordinator_tls_cert: .* is not valid for 'specdec-coordinator'"),
        (write_for_servers_only, "coordinator_tls_cert: .* (purpose|unsuitable)"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    files: TlsFiles, tmp_path: Path, spoil: Callable[[TlsFiles, Path], None], message: str
) -> None:
    spoil(files, tmp_path / "other")
    with pytest.raises(InvalidRequestError, match=message):
        check_tls(files)


def test_the_name_that_is_checked_is_the_setting(files: TlsFiles) -> None:
    Authority().issue(files.cert.parent, name="cell.example.com")
    config = ServiceConfig.of(**settings(files), coordinator_tls_name="cell.example.com")
    check_tls(config.tls.files)
    with pytest.raises(InvalidRequestError, match=NAME):
        check_tls(replace(files, name=NAME))
