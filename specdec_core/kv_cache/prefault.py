"""Blocks whose memory the system backs before they are taken.

The first write to a page is a fault, which took 2 to 10 us on a virtual machine: a new block of the
demo model has 150 of them, and a round of 16 rows takes one. Blocks that nobody needs for long stay
unbacked.
"""

from __future__ import annotations

import ctypes
import logging
import subprocess
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from specdec_core.kernels.build import build_library, reason_of

AHEAD_BYTES = 128 * 2**20
"""What is backed and not taken yet, at most; once half of it is taken, as much is backed again."""
_STEP_BYTES = 8 * 2**20
THREAD_NAME = "kv-backed-ahead"
_SOURCE = Path(__file__).parents[1] / "kernels" / "csrc" / "prefault.c"

_logger = logging.getLogger(__name__)

Touch = Callable[[int, int, int, int], None]
"""`specdec_touch` of csrc/prefault.c: the first byte, planes, bytes between them, bytes of each."""


class PagePrefault:
    """Of a pool [planes, blocks, bytes]: its lowest blocks are taken first."""

    def __init__(self, pool: Tensor, touch: Touch) -> None:
        self._pool = pool
        self._touch = touch
        _, self._num_blocks, block_bytes = pool.shape
        self._ahead = max(AHEAD_BYTES // (pool.shape[0] * block_bytes), 2)
        self._num_backed = 0
        self._thread: threading.Thread | None = None

    def reach(self, num_taken: int) -> None:
        """So many of the first blocks were ever taken. Starts what backs others, if it is time."""
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or num_taken + self._ahead // 2 <= self._num_backed:
            return
        first = max(self._num_backed, num_taken)
        self._num_backed = min(num_taken + self._ahead, self._num_blocks)
        if first < self._num_backed:
            part = self._pool[:, first : self._num_backed]
            # No daemon: one that comes back from C while Python ends takes the process down.
            self._thread = threading.Thread(target=self._back, args=(part,), name=THREAD_NAME)
            self._thread.start()

    def _back(self, part: Tensor) -> None:
        """Step by step: who ends the process waits for one alone."""
        num_planes, num_blocks, block_bytes = part.shape
        step = max(_STEP_BYTES // (num_planes * block_bytes), 1)
        for first in range(0, num_blocks, step):
            if not threading.main_thread().is_alive():
                return
            blocks = part[:, first : first + step]
            num_bytes = blocks.shape[1] * block_bytes
            self._touch(blocks.data_ptr(), num_planes, blocks.stride(0), num_bytes)


@lru_cache(maxsize=1)
def load_touch() -> Touch | None:
    """None, and a line in the log, where it cannot be built: then passes take the faults."""
    try:
        library, _ = build_library(_SOURCE)
    except (OSError, subprocess.SubprocessError) as error:
        _logger.info("memory is not backed ahead of its use: %s", reason_of(error))
        return None
    touch = library.specdec_touch
    touch.argtypes = [ctypes.c_void_p, *3 * [ctypes.c_int64]]
    touch.restype = None
    return touch
