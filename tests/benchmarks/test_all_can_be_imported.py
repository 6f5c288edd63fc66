"""A program that is run seldom still finds what it imports."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import benchmarks

ELSEWHERE = "benchmarks.peers.runners."
"""Each runs in its engine's environment."""
MODULES = [
    module.name
    for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")
    if not module.name.startswith(ELSEWHERE) and not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_it_finds_what_it_imports(name: str) -> None:
    importlib.import_module(name)
