"""A capture that fails, as PyTorch leaves it: it ends recording, and nothing else; one that runs
out of memory ends nothing."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from specdec_core.loading.memory import DeviceMemory
from specdec_core.worker.cuda_graphs import capture as captures
from specdec_core.worker.cuda_graphs.recorder import GraphRecorder

DEVICE = torch.device("cuda:0")


class Stream:
    def __init__(self) -> None:
        self.waited_for: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited_for.append(other)


DEFAULT, CAPTURING = Stream(), Stream()


class Cuda:
    """What torch.cuda is asked for around a capture."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream: Any = DEFAULT
        self.num_emptied = 0
        self.error_of_end: Exception | None = None
        self.pools: list[list[Any]] = []
        """The live graphs of each, weakly."""
        stand_ins: dict[str, Any] = {
            "Stream": lambda device: CAPTURING,
            "graph_pool_handle": self._new_pool,
            "CUDAGraph": _Graph,
            "device": lambda device: nullcontext(),
            "stream": lambda stream: nullcontext(),
            "current_stream": lambda device: self.stream,
            "set_stream": lambda stream: setattr(self, "stream", stream),
            "graph": self._capture,
            "mem_get_info": lambda device: (1, 2),
            "empty_cache": self._empty_cache,
        }
        for name, stand_in in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(captures, "_have_failed", threading.Event())

    def _empty_cache(self) -> None:
        self.num_emptied += 1

    def _new_pool(self) -> int:
        self.pools.append([])
        return len(self.pools) - 1

    def _capture(self, graph: _Graph, pool: int, **options: Any) -> _Capture:
        """As PyTorch's allocator, which ends with an internal assertion."""
        graphs = self.pools[pool]
        is_live = not graphs or any(one() is not None for one in graphs)
        if not is_live:
            raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")
        graphs.append(weakref.ref(graph))
        return _Capture(self)


class _Graph:
    def replay(self) -> None:
        pass


class _Capture:
    """The context of torch.cuda.graph: what ends a capture that CUDA has given up raises before the
    stream is reset. Where memory runs out CUDA has not."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def __enter__(self) -> None:
        self._cuda.stream = CAPTURING

    def __exit__(self, kind: object, *args: object) -> None:
        if kind not in (None, torch.OutOfMemoryError):
            raise RuntimeError("operation failed due to a previous error during capture")
        if self._cuda.error_of_end is not None:
            raise self._cuda.error_of_end
        self._cuda.stream = DEFAULT


class _OnceCaptured:
    """Runs through the warm-ups and fails in the capture."""

    def __init__(self, error: Exception | None = None) -> None:
        self.num_runs = 0
        self._error = error or RuntimeError("operation not permitted when stream is capturing")

    def __call__(self) -> None:
        self.num_runs += 1
        if self.num_runs == 3:
            raise self._error


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    fake = Cuda(monkeypatch)
    monkeypatch.setattr(GraphRecorder, "_warm_up", lambda recorder, work, clear: (work(), work()))
    return fake


def nothing() -> None:
    pass


def test_a_capture_that_fails_leaves_the_stream_as_it_was(cuda: Cuda) -> None:
    with pytest.raises(RuntimeError):
        GraphRecorder(DEVICE).record(_OnceCaptured(), nothing)
    assert cuda.stream == DEFAULT


def test_it_ends_recording_in_the_process_and_is_said_once(
    cuda: Cuda, caplog: pytest.LogCaptureFixture
) -> None:
    GraphRecorder(DEVICE).record(nothing, nothing)
    with pytest.raises(RuntimeError):
        GraphRecorder(DEVICE).record(_OnceCaptured(), nothing)
    runs: list[None] = []
    for _ in range(2):
        with pytest.raises(RuntimeError, match="failed before"):
            GraphRecorder(DEVICE).record(lambda: runs.append(None), nothing)
    assert runs == []
    assert caplog.text.count("captures no more") == 1


def test_memory_is_not_given_back_any_more(cuda: Cuda) -> None:
    recorder = GraphRecorder(DEVICE)
    assert recorder.free_bytes() == 1
    assert cuda.num_emptied == 1
    with pytest.raises(RuntimeError):
        recorder.record(_OnceCaptured(), nothing)
    before = cuda.num_emptied
    assert recorder.free_bytes() == DeviceMemory.now(DEVICE).free == 1
    assert cuda.num_emptied == before


def test_a_warm_up_that_fails_ends_nothing_for_others(cuda: Cuda) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory")

    recorder = GraphRecorder(DEVICE)
    with pytest.raises(RuntimeError, match="out of memory"):
        recorder.record(fail, nothing)
    recorder.record(nothing, nothing)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: out of memory")],
    ids=["allocator", "graph"],
)
def test_a_capture_without_memory_ends_nothing(cuda: Cuda, error: Exception) -> None:
    """The second is raised where a graph whose capture has ended is made ready to run."""
    recorder = GraphRecorder(DEVICE)
    if isinstance(error, torch.OutOfMemoryError):
        work: Any = _OnceCaptured(error)
    else:
        work = nothing
        cuda.error_of_end = error
    with pytest.raises(RuntimeError, match="out of memory"):
        recorder.record(work, nothing)
    cuda.error_of_end = None
    assert cuda.stream == DEFAULT
    assert not captures.have_failed()
    replay = recorder.record(nothing, nothing)
    replay()


def test_when_all_graphs_are_gone_their_pool_goes_too(cuda: Cuda) -> None:
    recorder = GraphRecorder(DEVICE)
    first, second = (recorder.record(nothing, nothing) for _ in range(2))
    assert [len(graphs) for graphs in cuda.pools] == [2], "recordings share their memory"
    del first
    third = recorder.record(nothing, nothing)
    assert len(cuda.pools) == 1
    before = cuda.num_emptied
    del second, third
    recorder.record(nothing, nothing)
    assert [len(graphs) for graphs in cuda.pools] == [3, 1]
    assert cuda.num_emptied > before


def test_what_follows_a_warm_up_that_fails_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still be writing to the buffers of the next pass."""
    current, side = Stream(), Stream()

    @contextmanager
    def entered(stream: Stream) -> Iterator[None]:
        yield

    cuda = Cuda(monkeypatch)
    cuda.stream = current
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    monkeypatch.setattr(torch.cuda, "stream", entered)

    def fail() -> None:
        current.waited_for.clear()
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        GraphRecorder(DEVICE).record(fail, nothing)
    assert current.waited_for == [side]
