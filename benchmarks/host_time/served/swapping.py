"""Swap parts of the service in its own processes, when they import them.

`hook/sitecustomize.py` is imported by every Python process that has its folder in PYTHONPATH. No
product code knows of it, and without FOLDER_VARIABLE it does nothing. Most processes of a service
import neither torch nor the pool, so what swaps is imported with what it swaps.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER_VARIABLE = "HOST_TIME_FOLDER"
"""Environment variable with the folder of shared numbers."""
_ROOT = Path(__file__).parents[3]
_HOOK = Path(__file__).parent / "hook"

Swap = Callable[[Any], None]
"""Changes a module that has just been imported."""


def variables(folder: Path) -> dict[str, str]:
    """Return the environment of a service whose replicas have modelled devices."""
    paths = [str(_HOOK), str(_ROOT), str(_ROOT / "proto"), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "XDG_CACHE_HOME": str(folder / "cache"),  # a modelled device's pass times are kept there
        FOLDER_VARIABLE: str(folder),
    }


def begin() -> None:
    """Watch the imports of this process if it belongs to such a service."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        sys.meta_path.insert(0, SwappingFinder(swaps(Path(folder))))


def swaps(folder: Path) -> Mapping[str, Swap]:
    """Return what swaps, by the name of the module that it changes."""

    def loader(model_host: Any) -> None:
        from benchmarks.host_time.served.replica import ModelledLoader

        model_host.load_model = ModelledLoader(folder)

    def lookups(registry: Any) -> None:
        from benchmarks.host_time.served.lookup import scripted_lookups
        from benchmarks.host_time.served.script import TokenScript
        from benchmarks.host_time.served.shared_numbers import CONTROL, VOCAB_SIZE, shared_numbers

        control = shared_numbers(folder, CONTROL)
        script = TokenScript(VOCAB_SIZE, lambda: control["acceptance"])
        registry.DRAFTERS["ngram"] = scripted_lookups(script)

    def leases(_: Any) -> None:
        from benchmarks.host_time.served.leases import LeaseWatch, watch_leases
        from benchmarks.host_time.served.shared_numbers import COORDINATOR, shared_numbers
        from benchmarks.host_time.served.waiting import OwnWait

        told = shared_numbers(folder, COORDINATOR)
        watch_leases(LeaseWatch(told, OwnWait()))

    return {
        "deployments.replica.model_host": loader,
        "specdec_core.speculation.registry": lookups,
        "deployments.coordinator.service": leases,
    }


class SwappingFinder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it changes some modules once others have found and loaded them."""

    def __init__(self, changes: Mapping[str, Swap]) -> None:
        self._changes = dict(changes)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See MetaPathFinder. Each module is changed once."""
        change = self._changes.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None, f"{name} is part of the service"
        spec.loader = _ThenChanged(spec.loader, change)
        return spec


class _ThenChanged(importlib.abc.Loader):
    """Loads a module as `loader` does, then changes it."""

    def __init__(self, loader: Any, change: Swap) -> None:
        self._loader = loader
        self._change = change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)
