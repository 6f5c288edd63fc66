"""Packages of the service for a GPU machine without a network, in parts that travel one by one.

python -m benchmarks.gpu_report.bundle pack                 with a network: writes the parts
python -m benchmarks.gpu_report.bundle install              on the GPU machine: joins and installs
PYTHONPATH=build/gpu_site make gpu-report ARGS="--only served"
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.gpu_report.environment import ROOT

REQUIREMENTS = (
    "ray[serve]",
    "grpcio",
    "protobuf",
    "pydantic",
    "opentelemetry-sdk",
    "typer",
    "rich",
    "llguidance",
)
"""Packages of the service that a machine with torch and transformers may lack."""
KEPT = ("numpy",)
"""Packages that torch and transformers there brought: another version could break them."""
PART_BYTES = 40 * 2**20
_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 26, 24, 17)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
)
_PACKAGES = (ROOT / "specdec_core", ROOT / "deployments", ROOT / "proto" / "specdec")
_LIST = "parts.json"


def pack(python: str, folder: Path, part_bytes: int = PART_BYTES) -> list[Path]:
    """Download the wheels for a version of Python and write them to `folder` as parts."""
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run(_download(python, wheels), check=True, cwd=ROOT)
        return write_parts(sorted(Path(wheels).iterdir()), folder, part_bytes)


def _download(python: str, folder: str) -> list[str]:
    options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for tag in (f"cp{python.replace('.', '')}", "abi3", "none"):
        options += ["--abi", tag]
    for platform in (*_PLATFORMS, "any"):
        options += ["--platform", platform]
    options += ["--constraint", "requirements.lock", "--dest", folder]
    return [sys.executable, "-m", "pip", "download", "--quiet", *options, *REQUIREMENTS]


def write_parts(wheels: Sequence[Path], folder: Path, part_bytes: int) -> list[Path]:
    """Write the wheels as one archive, cut into parts, and a list of the parts' digests."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("part-*"):
        old.unlink()
    parts: list[Path] = []
    with tempfile.TemporaryFile() as archive:
        with tarfile.open(fileobj=archive, mode="w") as packed:
            for wheel in wheels:
                if not wheel.name.startswith(tuple(f"{name}-" for name in KEPT)):
                    packed.add(wheel, wheel.name)
        archive.seek(0)
        while content := archive.read(part_bytes):
            parts.append(folder / f"part-{len(parts):02}")
            parts[-1].write_bytes(content)
    (folder / _LIST).write_text(json.dumps({part.name: _digest(part) for part in parts}, indent=1))
    return parts


def install(folder: Path, site: Path) -> None:
    """Install the wheels of all parts into `site`, and this checkout as a package. Raises
    ValueError for a part that is missing or differs."""
    wrong = [name for name, digest in _listed(folder) if not _is_whole(folder / name, digest)]
    if wrong:
        raise ValueError(
            f"missing or damaged parts in {folder}: {', '.join(wrong)}. Copy them again"
        )
    with tempfile.TemporaryDirectory() as wheels, tempfile.TemporaryFile() as archive:
        for name, _ in _listed(folder):
            archive.write((folder / name).read_bytes())
        archive.seek(0)
        with tarfile.open(fileobj=archive) as packed:
            packed.extractall(wheels, filter="data")
        options = ["--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(site)]
        command = [sys.executable, "-m", "pip", "install", "--quiet", *options]
        subprocess.run([*command, *map(str, Path(wheels).iterdir())], check=True)
    _link_checkout(site)


def _link_checkout(site: Path) -> None:
    """Link the packages of this checkout, and write the version that the service asks for."""
    for package in _PACKAGES:
        link = site / package.name
        link.unlink(missing_ok=True)
        link.symlink_to(package)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _listed(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the names of the parts and their digests."""
    yield from json.loads((folder / _LIST).read_text()).items()


def _is_whole(part: Path, digest: str) -> bool:
    return part.is_file() and _digest(part) == digest


def _digest(part: Path) -> str:
    return hashlib.sha256(part.read_bytes()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("pack", "install"))
    parser.add_argument("--python", default="3.12", help="Version of the GPU machine's Python.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu_bundle")
    parser.add_argument("--site", type=Path, default=ROOT / "build" / "gpu_site")
    asked = parser.parse_args(arguments)
    if asked.action == "install":
        install(asked.folder, asked.site)
        print(f"installed. Run PYTHONPATH={asked.site.resolve()} make gpu-report")
        return
    parts = pack(asked.python, asked.folder)
    print(f"{len(parts)} parts of at most {PART_BYTES >> 20} MiB in {asked.folder}")


if __name__ == "__main__":
    main()
