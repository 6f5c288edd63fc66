"""A capture that fails, as PyTorch leaves it: it ends recording, and nothing else."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from specdec_core.models.memory import DeviceMemory
from specdec_core.models.static_shapes import captures
from specdec_core.models.static_shapes.recorder import GraphRecorder

DEVICE = torch.device("cuda:0")
DEFAULT, CAPTURING = "default stream", "stream of captures"


class Cuda:
    """What torch.cuda is asked for around a capture."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream: Any = DEFAULT
        self.num_emptied = 0
        stand_ins: dict[str, Any] = {
            "Stream": lambda device: CAPTURING,
            "graph_pool_handle": lambda: None,
            "CUDAGraph": _Graph,
            "device": lambda device: nullcontext(),
            "stream": lambda stream: nullcontext(),
            "current_stream": lambda device: self.stream,
            "set_stream": lambda stream: setattr(self, "stream", stream),
            "graph": lambda graph, **options: _Capture(self),
            "mem_get_info": lambda device: (1, 2),
            "empty_cache": self._empty_cache,
        }
        for name, stand_in in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(captures, "_have_failed", threading.Event())

    def _empty_cache(self) -> None:
        self.num_emptied += 1


class _Graph:
    def replay(self) -> None:
        pass


class _Capture:
    """The context of torch.cuda.graph: what ends the capture raises before the stream is reset."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def __enter__(self) -> None:
        self._cuda.stream = CAPTURING

    def __exit__(self, kind: object, *args: object) -> None:
        if kind is not None:
            raise RuntimeError("operation failed due to a previous error during capture")
        self._cuda.stream = DEFAULT


class _OnceCaptured:
    """Runs through the warm-ups and fails in the capture."""

    def __init__(self) -> None:
        self.num_runs = 0

    def __call__(self) -> None:
        self.num_runs += 1
        if self.num_runs == 3:
            raise RuntimeError("operation not permitted when stream is capturing")


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
    assert recorder.free_bytes() == DeviceMemory.now(DEVICE).free == 1
    assert cuda.num_emptied == 1


def test_a_warm_up_that_fails_ends_nothing_for_others(cuda: Cuda) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory")

    recorder = GraphRecorder(DEVICE)
    with pytest.raises(RuntimeError, match="out of memory"):
        recorder.record(fail, nothing)
    recorder.record(nothing, nothing)
