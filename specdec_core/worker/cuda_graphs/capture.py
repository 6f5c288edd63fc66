"""Records whether this process still captures CUDA graphs. One failed capture ends it for all
models.

After a failed capture, PyTorch 2.11's allocator still acts as if the capture were active. It may
then stop the process when it is asked to release memory.
"""

from __future__ import annotations

import logging
import threading

import torch

_logger = logging.getLogger(__name__)

_have_failed = threading.Event()


def have_failed() -> bool:
    return _have_failed.is_set()


def give_up() -> None:
    """Stop capturing, and log a warning the first time."""
    if not _have_failed.is_set():
        _have_failed.set()
        _logger.warning("failed to capture a CUDA graph; this process captures no more graphs")


def empty_cache() -> None:
    """Return PyTorch's unused memory to the driver, if that is safe."""
    if not _have_failed.is_set():
        torch.cuda.empty_cache()
