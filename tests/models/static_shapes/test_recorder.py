"""Recordings: one for each shape, the oldest go first, and none where memory is short."""

from __future__ import annotations

from specdec_core.models.static_shapes.recorder import DirectRecorder, Recordings, Work


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
    recordings = Recordings(recorder)
    assert "a" not in recordings
    first = recordings.get("a", nothing, nothing)
    assert recordings.get("a", lambda: 1 / 0, nothing) is first
    assert "a" in recordings
    assert len(recorder.recorded) == 1


def test_the_one_used_longest_ago_goes_first() -> None:
    recordings = Recordings(CountingRecorder(), max_recordings=2)
    for key in ("a", "b", "a", "c"):
        recordings.get(key, nothing, nothing)
    assert [key in recordings for key in "abc"] == [True, False, True]
    assert len(recordings) == 2


def test_recordings_go_until_memory_is_free() -> None:
    gib = 2**30
    recorder = CountingRecorder(free=[gib, gib, gib, 1000, 2000, gib])
    recordings = Recordings(recorder)
    for key in ("a", "b", "c"):
        recordings.get(key, nothing, nothing)
    assert len(recordings) == 3
    recordings.get("d", nothing, nothing)
    assert [key in recordings for key in "abcd"] == [False, False, True, True]


def test_recordings_that_free_nothing_stay_but_one() -> None:
    """Asked again after a thousand refusals, not each time: an eviction each would leave none."""
    gib = 2**30
    recorder = CountingRecorder(free=[gib, gib, gib, 1000, 1000, gib])
    recordings = Recordings(recorder)
    for key in ("a", "b", "c"):
        recordings.get(key, nothing, nothing)
    for _ in range(1001):
        assert recordings.get("d", nothing, nothing) is None
    assert [key in recordings for key in "abcd"] == [False, True, True, False]
    assert recordings.get("b", nothing, nothing) is not None
    assert recordings.get("d", nothing, nothing) is not None


def test_what_is_kept_does_not_go_for_the_other() -> None:
    gib = 2**30
    recordings = Recordings(CountingRecorder(free=[gib, gib, 1000, 2000]))
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
