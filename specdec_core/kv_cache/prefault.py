"""Backs the memory of blocks before they are taken.

The first write to a page is a fault, which took 2 to 10 us on a virtual machine. A new block of the
demo model has 150 of them, and a round of 16 rows takes one block. Blocks that are not needed soon
stay unbacked.
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
"""Maximum bytes that are backed and not taken yet. Once half of them are taken, the rest is filled
up."""
_STEP_BYTES = 8 * 2**20
THREAD_NAME = "kv-backed-ahead"
_SOURCE = Path(__file__).parents[1] / "kernels" / "csrc" / "prefault.c"

_logger = logging.getLogger(__name__)

Touch = Callable[[int, int, int, int], None]
"""Type of `specdec_touch` of csrc/prefault.c: the first byte, planes, bytes between them, bytes of
each."""


class PagePrefault:
    """Backs the blocks of a pool [planes, blocks, bytes], lowest blocks first."""

    def __init__(self, pool: Tensor, touch: Touch) -> None:
        self._pool = pool
        self._touch = touch
        _, self._num_blocks, block_bytes = pool.shape
        self._ahead = max(AHEAD_BYTES // (pool.shape[0] * block_bytes), 2)
        self._num_backed = 0
        self._thread: threading.Thread | None = None

    def reach(self, num_taken: int) -> None:
        """Start backing more blocks if it is time. `num_taken` of the first blocks were ever
        taken."""
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or num_taken + self._ahead // 2 <= self._num_backed:
            return
        first = max(self._num_backed, num_taken)
        self._num_backed = min(num_taken + self._ahead, self._num_blocks)
        if first < self._num_backed:
            part = self._pool[:, first : self._num_backed]
            # Not a daemon: a daemon that returns from C while Python ends would crash the process.
            self._thread = threading.Thread(target=self._back, args=(part,), name=THREAD_NAME)
            self._thread.start()

    def _back(self, part: Tensor) -> None:
        """Back the blocks step by step, so that the end of the process waits for one step only."""
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
    """Return the touch function. If it cannot be built, log a line and return None; passes then
    take the faults."""
    try:
        library, _ = build_library(_SOURCE)
    except (OSError, subprocess.SubprocessError) as error:
        _logger.info(
            "cannot prefault the memory of the KV cache, so passes take the page faults: %s",
            reason_of(error),
        )
        return None
    touch = library.specdec_touch
    touch.argtypes = [ctypes.c_void_p, *3 * [ctypes.c_int64]]
    touch.restype = None
    return touch
