"""Lets the benchmark run on trees from before the modules got their names (decision 0024).

A module that such a tree lacks is the one that docs/decisions/renames.csv names for it. It also has
its classes under their new names, so that the benchmark knows one set of names only.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

TABLE = Path(__file__).parents[2] / "docs" / "decisions" / "renames.csv"
PACKAGE = "specdec_core"
_RENAMED = f"{PACKAGE}.scheduler"
"""A module of every tree with the new names."""

Name = tuple[str, str]
"""Module, and a name in it."""


class FormerNames(MetaPathFinder, Loader):
    """Finds the modules of a tree with former names by their new names."""

    def __init__(self, modules: Mapping[str, str], names: Mapping[Name, Name]) -> None:
        """Both map what is new to what it was."""
        self._modules = modules
        self._names = names
        packages = {name.rpartition(".")[0] for name in modules}
        packages |= {name.rpartition(".")[0] for name in packages}
        self._packages = {name for name in packages if name and not _exists(name)}
        for name in packages - self._packages - {""}:
            _make_room(import_module(name))

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname in self._modules:
            return spec_from_loader(fullname, self)
        if fullname in self._packages:
            return spec_from_loader(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the former module itself, so that what is patched in it counts."""
        former = self._modules.get(spec.name)
        if former is None:
            return None
        module = import_module(former)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Add the new names to a module that was executed under its former name."""
        spec = module.__spec__
        assert spec is not None
        self.add_names(spec.name, module)
        module.__spec__ = spec.loader_state or spec

    def add_names(self, name: str, module: ModuleType) -> None:
        """Add the names of module `name` that the tree has under former names."""
        for (new_module, new), (former_module, former) in self._names.items():
            if new_module != name or hasattr(module, new) or not _exists(former_module):
                continue
            found = getattr(import_module(former_module), former, None)
            if found is not None:
                setattr(module, new, found)

    def complete(self) -> None:
        """Add new names to modules that kept theirs."""
        for name in {module for module, _ in self._names} - self._modules.keys():
            if _exists(name):
                self.add_names(name, import_module(name))


def _exists(name: str) -> bool:
    """Return whether the tree that is measured has this module.

    It looks at files: a finder of an installed package would find those of another tree.
    """
    folder = Path(import_module(PACKAGE).__path__[0])
    file = folder.joinpath(*name.split(".")[1:])
    return file.with_suffix(".py").exists() or (file / "__init__.py").exists()


def _make_room(module: ModuleType) -> None:
    """Let a module that is a package now have modules of its own."""
    if not hasattr(module, "__path__"):
        module.__path__ = []


def read_table(rows: Iterable[Sequence[str]]) -> FormerNames:
    """Read (old, new): paths of modules, or dotted names of what is in them."""
    modules: dict[str, str] = {}
    names: dict[Name, Name] = {}
    for old, new in rows:
        if not new.startswith(PACKAGE):
            continue
        if new.endswith(".py"):
            modules.setdefault(_dotted(new), _dotted(old))  # others have joined the first
        elif "/" not in new:
            new_module, _, new_name = new.rpartition(".")
            former_module, _, former_name = old.rpartition(".")
            names[new_module, new_name] = former_module, former_name
    return FormerNames(modules, names)


def use_former_names() -> None:
    """Let imports find what a tree with former names has. Does nothing in other trees.

    The finder comes before others: a former package may hold a module of the new name's last part.
    """
    if _exists(_RENAMED):
        return
    with TABLE.open(newline="") as file:
        finder = read_table(list(csv.reader(file))[1:])
    sys.meta_path.insert(0, finder)
    finder.complete()


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
