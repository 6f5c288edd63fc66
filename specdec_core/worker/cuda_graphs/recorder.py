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

from specdec_core.worker.cuda_graphs import capture as captures

_logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Work = Callable[[], object]
"""Reads and writes tensors that stay where they are; the same operations each time. What it returns
does not count."""

MAX_RECORDINGS = 256
_MIN_FREE_BYTES = 512 * 2**20
"""Left for what runs beside the recordings: prefill, and the choice of tokens."""
_NUM_WARM_UPS = 2
_NUM_REFUSED = 1000
"""Passes of new shapes that run unrecorded before free memory is asked for again: asking waits.
Also passes of a shape whose recording failed, before it is tried again."""
MAX_FAILURES = 3
"""Recordings of a model that may fail in a row: then none is made any more."""
_NO_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Of whichever library; PyTorch's allocator raises torch.OutOfMemoryError."""


class Recorder(Protocol):
    """Turns work into something that repeats it."""

    def record(self, work: Work, clear: Work) -> Work:
        """May run `work` any number of times before it returns, each time after `clear`: what one
        run leaves is not what the next may read. Raises RuntimeError where it cannot be
        recorded: it may then be tried again where `is_out_of_memory`."""
        ...

    def free_bytes(self) -> int | None:
        """Of the device; None where recordings take no memory."""
        ...


class RecordingEndedError(RuntimeError):
    """So many recordings failed in a row that no more are made."""


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(some in text for some in _NO_MEMORY)


class DirectRecorder:
    """Calls the work itself."""

    def record(self, work: Work, clear: Work) -> Work:
        return work

    def free_bytes(self) -> int | None:
        return None


class GraphRecorder:
    """Captures CUDA graphs, which share their memory: one is replayed at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = None
        self._graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()
        """Those that somebody may still replay: their memory is in the pool."""

    def record(self, work: Work, clear: Work) -> Work:
        """Warms up first: libraries load, choose their kernels and take their workspaces then.

        Other threads may use the GPU meanwhile: a draft beside a target.
        """
        if captures.have_failed():
            raise RuntimeError("a capture failed before in this process")
        with torch.cuda.device(self._device):
            self._warm_up(work, clear)
            return self._capture(work)

    def free_bytes(self) -> int | None:
        captures.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]

    def _capture(self, work: Work) -> Work:
        """PyTorch leaves its stream the current one where a capture fails. One that runs out of
        memory it ends properly: others may follow."""
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
                captures.give_up()
            raise
        self._graphs.add(graph)
        return graph.replay

    def _live_pool(self) -> Any:
        """PyTorch frees a pool whose graphs are all gone, and refuses to capture into it again."""
        if not self._graphs:
            captures.empty_cache()
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def _warm_up(self, work: Work, clear: Work) -> None:
        """What is done next waits for it, also where it fails half way: both write the buffers."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        try:
            with torch.cuda.stream(self._stream):
                for _ in range(_NUM_WARM_UPS):
                    clear()
                    work()
        finally:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


class GraphCache(Generic[Key]):
    """The recordings of one model by their shapes; those used longest ago go first."""

    def __init__(self, recorder: Recorder, max_recordings: int = MAX_RECORDINGS) -> None:
        self._recorder = recorder
        self._max_recordings = max_recordings
        self._recorded: OrderedDict[Key, Work] = OrderedDict()
        self._num_to_refuse = 0
        self._refused: dict[Key, int] = {}
        """Shapes whose recording failed, and how many of their passes still run unrecorded."""
        self._num_failed = 0
        """In a row."""
        self.seconds = 0.0
        """Spent on recording, warm-ups and failures included."""

    def __len__(self) -> int:
        return len(self._recorded)

    def __contains__(self, key: Key) -> bool:
        return key in self._recorded

    def __iter__(self) -> Iterator[Key]:
        return iter(self._recorded)

    def clear(self) -> None:
        """Those who hold one may still replay it."""
        self._recorded.clear()

    def get(self, key: Key, work: Work, clear: Work, kept: Collection[Key] = ()) -> Work | None:
        """What was recorded under `key`; `work` is recorded where nothing was, with `clear` as
        Recorder has it. None where there is no room, also when all but the `kept` ones went, and
        where recording failed. Raises RecordingEndedError for the last failure in a row."""
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
        """Where memory runs out, the older half of the others goes, then all of them, and with them
        the memory that they share."""
        reason, may_retry = "", True
        for num_to_leave in (len(self) // 2, 0, None):
            try:
                recorded = self._recorder.record(work, clear)
            except RuntimeError as error:
                reason, may_retry = str(error), is_out_of_memory(error)
            else:
                self._num_failed = 0
                return recorded
            # Not before the error is gone: it holds what the attempt had taken.
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
            "a pass could not be recorded and runs unrecorded, failure %d of %d in a row: %s",
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
        """False where none could go."""
        num_before = len(self)
        while len(self) > num_to_leave and self._evict(kept):
            pass
        return len(self) < num_before

    def _has_room(self, kept: Collection[Key]) -> bool:
        """One refusal stands for the next thousand: each would evict a recording for nothing."""
        if self._num_to_refuse > 0:
            self._num_to_refuse -= 1
            return False
        if self._make_room(kept):
            return True
        _logger.info("no room for a recording beside %d others", len(self))
        self._num_to_refuse = _NUM_REFUSED
        return False

    def _make_room(self, kept: Collection[Key]) -> bool:
        """Recordings share their memory, so that one may go and free nothing: then the rest stays,
        and so do the `kept` ones, which somebody holds."""
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
    """None where passes of any shape cost no more than recorded ones."""
    return GraphRecorder(device) if device.type == "cuda" else None
