"""Where our kernels in Triton run in tests: on a GPU, else by Triton's interpreter."""

from __future__ import annotations

import importlib.util

import numpy
import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _reason() -> str:
    """Why they cannot run; empty where they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    import triton

    is_new = numpy.lib.NumpyVersion(numpy.__version__) >= "2.4.0"
    if not torch.cuda.is_available() and is_new and triton.__version__ < "3.7":
        return "Triton 3.6's interpreter needs numpy below 2.4"
    return ""


needs_triton = pytest.mark.skipif(bool(_reason()), reason=_reason() or "Triton is here")
