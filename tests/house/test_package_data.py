"""An installed package has every file that lies beside its modules."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
DATA: dict[str, list[str]] = SETUPTOOLS["package-data"]
SOURCES = {"specdec_core": ROOT, "deployments": ROOT, "specdec": ROOT / "proto"}
BUILT = {".py", ".pyc", ".so"}


def package_of(file: Path) -> Path:
    """Return the nearest folder above a file that is a package."""
    return next(folder for folder in file.parents if (folder / "__init__.py").is_file())


def files_left_out(package: str, data: dict[str, list[str]]) -> list[str]:
    """Return the files under a package that an installation would not have."""
    source = SOURCES[package]
    left_out = []
    for file in sorted((source / package).rglob("*")):
        if not file.is_file() or file.suffix in BUILT:
            continue
        folder = package_of(file)
        name = ".".join(folder.relative_to(source).parts)
        patterns = (*data.get("*", ()), *data.get(name, ()))
        if not any(file in folder.glob(pattern) for pattern in patterns):
            left_out.append(str(file.relative_to(source)))
    return left_out


@pytest.mark.parametrize("package", SOURCES)
def test_no_file_is_left_out(package: str) -> None:
    assert files_left_out(package, DATA) == []


@pytest.mark.parametrize("pattern", [name for name in DATA if name != "*"])
def test_every_pattern_is_that_of_a_package_and_finds_files(pattern: str) -> None:
    folder = ROOT.joinpath(*pattern.split("."))
    assert (folder / "__init__.py").is_file(), f"{pattern} is no package"
    assert all(list(folder.glob(one)) for one in DATA[pattern])


def test_files_that_moved_without_their_pattern_are_found() -> None:
    moved = {name: data for name, data in DATA.items() if name != "deployments.demo"}
    moved["deployments"] = DATA["deployments.demo"]
    assert "deployments/demo/draft_weights/smollm2-135m-draft/config.json" in files_left_out(
        "deployments", moved
    )
