"""Recordings: one for each shape, the oldest go first, and none where memory is short."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable

import pytest
import torch

from specdec_core.worker.cuda_graphs.recorder import (
    MAX_FAILURES,
    DirectRecorder,
    GraphCache,
    RecordingEndedError,
    Work,
)


class CountingRecorder:
    def __init__(self, free: list[int] | None = None) -> None:
        self.recorded: list[Work] = []
        self._free = free

    def record(self, work: Work, clear: Work) -> Work:
        self.recorded.append(work)
        return work

    def free_bytes(self) -> int | None:
        return None if self._free is None else self._free.pop(0)


def nothing() -> None:
    pass


def test_a_shape_is_recorded_once() -> None:
    recorder = CountingRecorder()
    recordings = GraphCache(recorder)
    assert "a" not in recordings
    first = recordings.get("a", nothing, nothing)
    assert recordings.get("a", lambda: 1 / 0, nothing) is first
    assert "a" in recordings
    assert len(recorder.recorded) == 1


def test_the_time_of_recording_is_counted() -> None:
    """That of a replay is not."""

    def slow() -> None:
        time.sleep(0.02)

    class SlowRecorder(DirectRecorder):
        def record(self, work: Work, clear: Work) -> Work:
            work()
            return work

    recordings = GraphCache(SlowRecorder())
    recordings.get("a", slow, nothing)
    once = recordings.seconds
    assert once >= 0.02
    recordings.get("a", slow, nothing)
    assert recordings.seconds == once


def test_the_one_used_longest_ago_goes_first() -> None:
    recordings = GraphCache(CountingRecorder(), max_recordings=2)
    for key in ("a", "b", "a", "c"):
        recordings.get(key, nothing, nothing)
    assert [key in recordings for key in "abc"] == [True, False, True]
    assert len(recordings) == 2


def test_recordings_go_until_memory_is_free() -> None:
    gib = 2**30
    recorder = CountingRecorder(free=[gib, gib, gib, 1000, 2000, gib])
    recordings = GraphCache(recorder)
    for key in ("a", "b", "c"):
        recordings.get(key, nothing, nothing)
    assert len(recordings) == 3
    recordings.get("d", nothing, nothing)
    assert [key in recordings for key in "abcd"] == [False, False, True, True]


def test_recordings_that_free_nothing_stay_but_one() -> None:
    """Asked again after a thousand refusals, not each time: an eviction each would leave none."""
    gib = 2**30
    recorder = CountingRecorder(free=[gib, gib, gib, 1000, 1000, gib])
    recordings = GraphCache(recorder)
    for key in ("a", "b", "c"):
        recordings.get(key, nothing, nothing)
    for _ in range(1001):
        assert recordings.get("d", nothing, nothing) is None
    assert [key in recordings for key in "abcd"] == [False, True, True, False]
    assert recordings.get("b", nothing, nothing) is not None
    assert recordings.get("d", nothing, nothing) is not None


def test_what_is_kept_does_not_go_for_the_other() -> None:
    gib = 2**30
    recordings = GraphCache(CountingRecorder(free=[gib, gib, 1000, 2000]))
    for key in ("first", "old"):
        recordings.get(key, nothing, nothing)
    assert recordings.get("later", nothing, nothing, kept=("first", "later")) is None
    assert ["first" in recordings, "old" in recordings] == [True, False]


def test_on_a_cpu_work_is_called() -> None:
    calls: list[int] = []
    replay = DirectRecorder().record(lambda: calls.append(1), nothing)
    assert calls == []
    replay()
    replay()
    assert calls == [1, 1]


class Replay:
    """Its memory is taken as long as somebody holds it."""

    def __call__(self) -> None:
        pass


class FullRecorder(DirectRecorder):
    """Memory for so many recordings at a time; `work` may raise what an attempt does."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._taken: weakref.WeakSet[Replay] = weakref.WeakSet()
        self.num_tried = 0

    def record(self, work: Work, clear: Work) -> Work:
        self.num_tried += 1
        work()
        if len(self._taken) >= self._room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        replay = Replay()
        self._taken.add(replay)
        return replay


def held(recordings: GraphCache, keys: str) -> str:
    return "".join(key for key in keys if key in recordings)


def too_large() -> None:
    raise RuntimeError("CUDA error: out of memory")


def test_where_memory_runs_out_the_older_half_goes_and_the_shape_is_tried_again() -> None:
    recorder = FullRecorder(room=4)
    recordings = GraphCache(recorder)
    for key in "abcda":
        recordings.get(key, nothing, nothing)
    assert recordings.get("e", nothing, nothing) is not None
    assert held(recordings, "abcde") == "ade"
    assert recorder.num_tried == 6


def test_where_that_is_not_enough_all_go_but_those_in_use() -> None:
    recordings = GraphCache(FullRecorder(room=1), max_recordings=8)
    assert recordings.get("a", nothing, nothing) is not None
    assert recordings.get("b", nothing, nothing) is not None
    assert held(recordings, "ab") == "b"
    assert recordings.get("c", nothing, nothing, kept=("b", "c")) is None
    assert held(recordings, "abc") == "b"


def test_an_attempt_is_given_up_before_the_next_begins() -> None:
    """What it took is held by its error."""
    taken: list[weakref.ref[Replay]] = []

    def take() -> None:
        assert all(one() is None for one in taken)
        memory = Replay()
        taken.append(weakref.ref(memory))
        if len(taken) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    recordings = GraphCache(FullRecorder(room=2))
    recordings.get("a", nothing, nothing)
    assert recordings.get("b", take, nothing) is not None
    assert len(taken) == 2


def test_a_shape_that_does_not_fit_runs_unrecorded_and_later_ones_are_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is not tried each time: each attempt may cost all others."""
    recorder = FullRecorder(room=8)
    recordings = GraphCache(recorder)
    assert recordings.get("large", too_large, nothing) is None
    assert "failure 1 of 3 in a row: CUDA error: out of memory" in caplog.text
    assert recordings.get("small", nothing, nothing) is not None
    for _ in range(1000):
        assert recordings.get("large", too_large, nothing) is None
    assert recorder.num_tried == 2
    assert "small" in recordings
    assert recordings.get("large", nothing, nothing) is not None


@pytest.mark.parametrize("fail", [too_large, lambda: 1 / torch.ones(2).view(3)])
def test_failures_in_a_row_end_recording(
    fail: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    """One that is recorded shows that it goes on; nothing is kept in the end."""
    recordings = GraphCache(FullRecorder(room=8))
    for key in range(MAX_FAILURES - 1):
        assert recordings.get(key, fail, nothing) is None
    assert recordings.get("between", nothing, nothing) is not None
    for key in range(MAX_FAILURES - 1):
        assert recordings.get(("other", key), fail, nothing) is None
    with caplog.at_level(logging.WARNING), pytest.raises(RecordingEndedError):
        recordings.get("last", fail, nothing)
    assert len(recordings) == 0
