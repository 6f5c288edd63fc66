"""Whether this process still captures CUDA graphs: one capture that failed ends it, for all models.

PyTorch 2.11's allocator goes on believing that such a capture is under way, and may then stop the
process where it is asked to give memory back.
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
    """Says so the first time."""
    if not _have_failed.is_set():
        _have_failed.set()
        _logger.warning("a CUDA graph could not be captured: this process captures no more")


def empty_cache() -> None:
    """Give the driver what PyTorch holds and does not use, where that is safe."""
    if not _have_failed.is_set():
        torch.cuda.empty_cache()
