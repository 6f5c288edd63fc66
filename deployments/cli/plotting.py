"""Plots: a check that they can be drawn, and the code that all of them share."""

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
    """Raises InvalidRequestError if the plotting library is not installed."""
    if find_spec("matplotlib") is None:
        raise InvalidRequestError(
            f"--plot needs matplotlib: {install_command('bench')}, or leave --plot out"
        )


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yield a figure of `width` by `height` inches for drawing, and save it afterwards."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    yield figure
    figure.savefig(path, dpi=_DPI)
