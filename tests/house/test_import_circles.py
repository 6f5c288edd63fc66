"""No module of the product imports itself by way of others, not even for its types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("specdec_core", "deployments", "k8s")


def modules() -> dict[str, Path]:
    """Return the file of each module by its name."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }


def imported(source: str) -> Iterator[str]:
    """Yield the names of what a module imports. Some are modules, others are in a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def import_graph() -> dict[str, set[str]]:
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, file in known.items():
        found = imported(file.read_text())
        targets = {one if one in known else one.rpartition(".")[0] for one in found}
        graph[name] = (targets & known.keys()) - {name}
    return graph


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = import_graph()
    assert len(graph) > 400
    TopologicalSorter(graph).prepare()


def test_a_circle_is_found() -> None:
    graph = import_graph()
    graph["specdec_core.errors"] |= {"specdec_core.engine"}
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()
