"""Work that is recorded once and then replayed as a whole: a CUDA graph, or on a CPU a call."""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import torch

from specdec_core.worker.cuda_graphs import capture

_logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Work = Callable[[], object]
"""Function that reads and writes tensors at fixed addresses, with the same operations each time.
Its return value is ignored."""

MAX_RECORDINGS = 256
_MIN_FREE_BYTES = 512 * 2**20
"""Bytes to leave for unrecorded work: prefill, and the choice of tokens."""
_NUM_WARM_UPS = 2
_NUM_REFUSED = 1000
"""Passes of new shapes that run unrecorded before free memory is queried again, because the query
waits. Also passes of a shape whose recording failed, before it is tried again."""
MAX_FAILURES = 3
"""Recordings of a model that may fail in a row. After that none is made any more."""
_NO_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Texts of memory errors from any library. PyTorch's allocator raises torch.OutOfMemoryError."""


class Recorder(Protocol):
    """Turns work into a callable that repeats it."""

    def record(self, work: Work, clear: Work) -> Work:
        """Return a callable that repeats `work`.

        May run `work` any number of times before it returns, each time after `clear`, because a run
        may not read what an earlier one left. Raises RuntimeError if the work cannot be recorded.
        The caller may try again if `is_out_of_memory`.
        """
        ...

    def free_bytes(self) -> int | None:
        """Return the free bytes of the device, or None if recordings take no memory."""
        ...


class RecordingEndedError(RuntimeError):
    """Too many recordings failed in a row, so no more are made."""


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(some in text for some in _NO_MEMORY)


class DirectRecorder:
    """Recorder that returns the work itself."""

    def record(self, work: Work, clear: Work) -> Work:
        return work

    def free_bytes(self) -> int | None:
        return None


class GraphRecorder:
    """Captures CUDA graphs. They share their memory, because one is replayed at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = None
        self._graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()
        """Graphs that a caller may still replay. Their memory is in the pool."""

    def record(self, work: Work, clear: Work) -> Work:
        """Warm up, then capture. In the warm-up, libraries load, choose kernels and allocate
        workspaces.

        Other threads may use the GPU in the meantime, for example a draft next to its target.
        """
        if capture.have_failed():
            raise RuntimeError("a capture failed before in this process")
        with torch.cuda.device(self._device):
            self._warm_up(work, clear)
            return self._capture(work)

    def free_bytes(self) -> int | None:
        capture.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]

    def _capture(self, work: Work) -> Work:
        """Capture `work` and return the replay. If a capture fails, PyTorch leaves its own stream
        current. After a capture that runs out of memory, PyTorch cleans up, and others may follow.
        """
        stream = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        pool = self._live_pool()
        try:
            with torch.cuda.graph(
                graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                work()
        except BaseException as error:
            torch.cuda.set_stream(stream)
            if not is_out_of_memory(error):
                capture.give_up()
            raise
        self._graphs.add(graph)
        return graph.replay

    def _live_pool(self) -> Any:
        """Return the pool, or a new one if all its graphs are gone. PyTorch frees a pool without
        graphs and refuses to capture into it again."""
        if not self._graphs:
            capture.empty_cache()
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def _warm_up(self, work: Work, clear: Work) -> None:
        """Run the work before the capture. The current stream waits for it, even if it fails half
        way, because both write the buffers."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        try:
            with torch.cuda.stream(self._stream):
                for _ in range(_NUM_WARM_UPS):
                    clear()
                    work()
        finally:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


class GraphCache(Generic[Key]):
    """Recordings of one model by their shapes, evicted in order of last use."""

    def __init__(self, recorder: Recorder, max_recordings: int = MAX_RECORDINGS) -> None:
        self._recorder = recorder
        self._max_recordings = max_recordings
        self._recorded: OrderedDict[Key, Work] = OrderedDict()
        self._num_to_refuse = 0
        self._refused: dict[Key, int] = {}
        """Shapes whose recording failed, and how many of their passes still run unrecorded."""
        self._num_failed = 0
        """Failed recordings in a row."""
        self.seconds = 0.0
        """Seconds spent on recording, including warm-ups and failures."""

    def __len__(self) -> int:
        return len(self._recorded)

    def __contains__(self, key: Key) -> bool:
        return key in self._recorded

    def __iter__(self) -> Iterator[Key]:
        return iter(self._recorded)

    def clear(self) -> None:
        """Drop all recordings. A caller that holds one may still replay it."""
        self._recorded.clear()

    def get(self, key: Key, work: Work, clear: Work, kept: Collection[Key] = ()) -> Work | None:
        """Return the recording under `key`. If there is none, record `work`, with `clear` as in
        Recorder.

        Return None if there is no room even without all recordings except the `kept` ones, or if
        recording fails. Raises RecordingEndedError for the last failure in a row.
        """
        if key not in self._recorded:
            if self._is_refused(key) or not self._has_room(kept):
                return None
            started = time.perf_counter()
            try:
                recorded = self._record(key, work, clear, kept)
            finally:
                self.seconds += time.perf_counter() - started
            if recorded is None:
                return None
            self._recorded[key] = recorded
            _logger.debug("recorded %s, %d in all", key, len(self))
        self._recorded.move_to_end(key)
        return self._recorded[key]

    def _record(self, key: Key, work: Work, clear: Work, kept: Collection[Key]) -> Work | None:
        """Record `work`. If memory runs out, evict the older half of the others, then all of them,
        and with them the memory that they share."""
        reason, may_retry = "", True
        for num_to_leave in (len(self) // 2, 0, None):
            try:
                recorded = self._recorder.record(work, clear)
            except RuntimeError as error:
                reason, may_retry = str(error), is_out_of_memory(error)
            else:
                self._num_failed = 0
                return recorded
            # Evict only after the error is gone, because it holds the memory of the attempt.
            if num_to_leave is None or not may_retry or not self._evict_to(num_to_leave, kept):
                break
        self._fail(key, reason)
        return None

    def _fail(self, key: Key, reason: str) -> None:
        self._num_failed += 1
        self._refused[key] = _NUM_REFUSED
        if self._num_failed >= MAX_FAILURES:
            self.clear()
            raise RecordingEndedError(reason)
        _logger.warning(
            "failed to record a pass; it runs without a recording, failure %d of %d in a row: %s",
            self._num_failed,
            MAX_FAILURES,
            reason,
        )

    def _is_refused(self, key: Key) -> bool:
        num_left = self._refused.get(key, 0)
        if num_left > 0:
            self._refused[key] = num_left - 1
        return num_left > 0

    def _evict_to(self, num_to_leave: int, kept: Collection[Key]) -> bool:
        """Evict the oldest recordings. Return False if none could be evicted."""
        num_before = len(self)
        while len(self) > num_to_leave and self._evict(kept):
            pass
        return len(self) < num_before

    def _has_room(self, kept: Collection[Key]) -> bool:
        """Return True if there is room. After one refusal the next thousand calls are refused too,
        because each would evict a recording for no gain."""
        if self._num_to_refuse > 0:
            self._num_to_refuse -= 1
            return False
        if self._make_room(kept):
            return True
        _logger.info("no memory for another recording; keeping the %d that exist", len(self))
        self._num_to_refuse = _NUM_REFUSED
        return False

    def _make_room(self, kept: Collection[Key]) -> bool:
        """Evict recordings until there is room. Recordings share their memory, so evicting one may
        free nothing; then the rest stays. The `kept` ones, which a caller holds, always stay."""
        while len(self) >= self._max_recordings:
            if not self._evict(kept):
                return False
        free = self._free_bytes()
        while free < _MIN_FREE_BYTES:
            before = free
            if not self._evict(kept):
                return False
            free = self._free_bytes()
            if free <= before:
                return False
        return True

    def _evict(self, kept: Collection[Key]) -> bool:
        oldest = next((key for key in self._recorded if key not in kept), None)
        if oldest is None:
            return False
        del self._recorded[oldest]
        return True

    def _free_bytes(self) -> float:
        free = self._recorder.free_bytes()
        return math.inf if free is None else free


def recorder_for(device: torch.device) -> Recorder | None:
    """Return None if passes of any shape cost no more than recorded ones."""
    return GraphRecorder(device) if device.type == "cuda" else None
