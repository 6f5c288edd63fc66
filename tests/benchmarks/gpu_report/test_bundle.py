"""The bundle of packages: parts, and what is installed from them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu_report.bundle import install, write_parts
from deployments.version import package_version


def wheel(folder: Path, name: str) -> Path:
    """Write a wheel of one module that says its name."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as written:
        written.writestr(f"{name}.py", f"NAME = {name!r}\n" + "#" * 500)
        written.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        written.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        written.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    wheels = [wheel(tmp_path, name) for name in ("bundled_one", "bundled_two", "numpy")]
    parts = write_parts(wheels, tmp_path / "bundle", part_bytes=1500)
    assert len(parts) > 2
    assert all(part.stat().st_size <= 1500 for part in parts)
    return tmp_path / "bundle"


def test_what_was_packed_is_installed_but_not_what_torch_brings(
    bundle: Path, tmp_path: Path
) -> None:
    install(bundle, tmp_path / "site")
    found = sorted(path.name for path in (tmp_path / "site").glob("*.py"))
    assert found == ["bundled_one.py", "bundled_two.py"]


def test_the_checkout_is_installed_with_its_version(bundle: Path, tmp_path: Path) -> None:
    for _ in range(2):  # a second run of the report installs again
        install(bundle, tmp_path / "site")
    asked = "import deployments.version as v, specdec.v1; print(v.package_version(), v.__file__)"
    env = {"PYTHONPATH": str(tmp_path / "site")}
    found = subprocess.run(
        [sys.executable, "-c", asked], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    version, file = found.stdout.split()
    assert version == package_version()
    assert Path(file).is_relative_to(tmp_path / "site")


def test_a_part_that_is_missing_or_damaged_is_named(bundle: Path, tmp_path: Path) -> None:
    (bundle / "part-00").unlink()
    (bundle / "part-02").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"part-00, part-02\. Copy them again"):
        install(bundle, tmp_path / "site")
