"""(j): while a world runs, service code that reads a real clock is a violation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deployments.simulation.record import Violation

_SECONDS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_CLOCKS = (*_SECONDS, *(f"{name}_ns" for name in _SECONDS))
_OURS = ("specdec_core.", "deployments.")


@contextmanager
def no_clocks() -> Iterator[None]:
    """Make the service's reading of a real clock a violation. Other code, such as a progress bar,
    reads clocks as usual."""
    real = {name: getattr(time, name) for name in _CLOCKS}
    for name, clock in real.items():
        setattr(time, name, _watched(name, clock))
    try:
        yield
    finally:
        for name, clock in real.items():
            setattr(time, name, clock)


def _watched(name: str, clock: Callable[[], Any]) -> Callable[[], Any]:
    def read() -> Any:
        module = sys._getframe(1).f_globals.get("__name__", "")
        if module.startswith(_OURS):
            raise Violation(f"(j) {module} reads time.{name}")
        return clock()

    return read
