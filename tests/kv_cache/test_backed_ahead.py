"""Memory is backed before it is taken: in order, once, not beyond the pool; nothing is changed."""

from __future__ import annotations

import mmap
import resource
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from specdec_core.kv_cache import paged as backed_ahead
from specdec_core.kv_cache.paged import THREAD_NAME, KVShape, PagedKV, PagePrefault, load_touch

NUM_PLANES, NUM_BLOCKS, BLOCK_BYTES = 4, 100, 64
AHEAD = 20


@pytest.fixture(autouse=True)
def few_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backed_ahead, "AHEAD_BYTES", AHEAD * NUM_PLANES * BLOCK_BYTES)


def pool() -> Tensor:
    return torch.zeros(NUM_PLANES, NUM_BLOCKS, BLOCK_BYTES, dtype=torch.uint8)


def until_done() -> None:
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join()


@dataclass
class Touched:
    """Ranges of blocks, instead of their memory."""

    pool: Tensor
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, first: int, num_planes: int, stride: int, num_bytes: int) -> None:
        assert (num_planes, stride) == (NUM_PLANES, NUM_BLOCKS * BLOCK_BYTES)
        begin = (first - self.pool.data_ptr()) // BLOCK_BYTES
        self.ranges.append((begin, begin + num_bytes // BLOCK_BYTES))


def test_so_many_blocks_are_backed_ahead_each_once_and_in_order() -> None:
    memory = pool()
    touched = Touched(memory)
    ahead = PagePrefault(memory, touched)
    for num_taken in range(1, NUM_BLOCKS + 1):
        ahead.reach(num_taken)
        until_done()
        (_, end) = touched.ranges[-1]
        assert end <= max(num_taken + AHEAD, NUM_BLOCKS)
        assert end == NUM_BLOCKS or end > num_taken + AHEAD // 2 - 1
    assert touched.ranges[0] == (1, 1 + AHEAD)
    ends = [end for _, end in touched.ranges]
    assert [begin for begin, _ in touched.ranges[1:]] == ends[:-1]
    assert ends[-1] == NUM_BLOCKS


def test_what_is_taken_already_is_left_out() -> None:
    memory = pool()
    touched = Touched(memory)
    PagePrefault(memory, touched).reach(60)
    until_done()
    assert touched.ranges == [(60, 60 + AHEAD)]


def test_only_one_thread_is_at_it() -> None:
    may_end, num_begun = threading.Event(), 0

    def slow(*area: int) -> None:
        nonlocal num_begun
        num_begun += 1
        may_end.wait(60)

    ahead = PagePrefault(pool(), slow)
    ahead.reach(1)
    ahead.reach(50)
    (thread,) = (one for one in threading.enumerate() if one.name == THREAD_NAME)
    assert not thread.daemon, "Python would end under it, and it would abort the process"
    may_end.set()
    until_done()
    assert num_begun == 1
    ahead.reach(50)
    until_done()
    assert num_begun == 2


_EXITS_MEANWHILE = """
import ctypes, sys, torch
from specdec_core.kv_cache import paged as backed_ahead
backed_ahead.AHEAD_BYTES, backed_ahead._STEP_BYTES = 2**32, 2**20
usleep = ctypes.CDLL(None).usleep
pool = torch.empty(4, 2**14, 2**16, dtype=torch.uint8)
ahead = backed_ahead.PagePrefault(pool, lambda *area: usleep(10_000))
ahead.reach(1)
"""


@pytest.mark.thorough
def test_a_process_that_ends_meanwhile_ends_well_and_soon() -> None:
    """41 s of steps are left."""
    subprocess.run([sys.executable, "-c", _EXITS_MEANWHILE], check=True, timeout=35)


def test_a_cache_backs_what_follows_the_blocks_that_were_ever_taken() -> None:
    shape = KVShape(
        num_layers=2, num_kv_heads=1, head_dim=2, dtype=torch.float16, device=torch.device("cpu")
    )
    touched = Touched(torch.empty(0))
    kv = PagedKV(shape, NUM_BLOCKS, touch=touched)
    touched.pool = kv.pools(0)[0]
    slot = kv.allocate()
    kv.extend({slot: 16})
    until_done()
    assert touched.ranges == [(1, 1 + AHEAD)]
    kv.rollback(slot, 0)
    kv.extend({slot: 16 * (AHEAD // 2 + 1)})  # the first one comes back
    until_done()
    assert len(touched.ranges) == 1
    kv.extend({slot: 16})
    until_done()
    assert touched.ranges[1:] == [(1 + AHEAD, AHEAD // 2 + 2 + AHEAD)]


@pytest.mark.skipif(load_touch() is None, reason="no C compiler")
def test_touched_pages_are_backed_and_their_bytes_stay() -> None:
    touch = load_touch()
    assert touch is not None
    num_planes, stride, num_bytes, begin = 3, 1 << 20, 300_000, 1000
    with mmap.mmap(-1, num_planes * stride, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory[begin + stride] = 7
        bytes_PX = torch.frombuffer(memory, dtype=torch.uint8).view(num_planes, stride)
        touch(bytes_PX.data_ptr() + begin, num_planes, stride, num_bytes)
        del bytes_PX
        assert memory[begin + stride] == 7
        starts = [stride * plane + begin for plane in range(num_planes)]
        places = [start + at for start in starts for at in range(0, num_bytes, 4096)]
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for place in places:
            memory[place] = 1
        num_faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        assert sum(memory[:]) == len(places), "nothing else was written"
    assert num_faults < 20, f"of {len(places)} pages"
