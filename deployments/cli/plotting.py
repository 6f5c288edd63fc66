"""Pictures: whether they can be drawn, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from deployments.extras import install_command
from specdec_core.errors import InvalidRequestError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 120


def check_can_plot() -> None:
    """Raises InvalidRequestError where the plotting library is not installed."""
    if find_spec("matplotlib") is None:
        raise InvalidRequestError(
            f"--plot needs matplotlib: {install_command('bench')}, or leave --plot out"
        )


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches: drawn inside, and saved once that is done."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    yield figure
    figure.savefig(path, dpi=_DPI)
